"""The gateway over HTTP: connections, admission, processes, health and numbers."""
