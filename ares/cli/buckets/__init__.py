"""Commands about buckets and their objects."""
