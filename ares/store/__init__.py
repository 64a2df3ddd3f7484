"""What a durable server keeps on disk."""
