"""Messages between processes: batches, and the transports that carry them."""
