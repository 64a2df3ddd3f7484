"""The machine under a process: its memory, files, event loop, logs, and the service manager."""
