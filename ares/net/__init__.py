"""Messages between processes: batches, and their transports."""
