"""What operations did and how long it took: recorded as plain data, made into spans and handed to whoever collects them, beside the operations."""
