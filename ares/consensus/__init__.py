"""The consensus service that decides configurations: its port, and implementations of the port."""
