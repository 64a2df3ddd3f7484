"""The autopilot: watches the servers, and replaces dead servers."""
