"""ZeroMQ's protocol (ZMTP 3.1, CURVE) in this project's own implementation, for the event loop."""
