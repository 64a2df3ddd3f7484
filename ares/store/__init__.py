"""The contents of a durable server's disk."""
