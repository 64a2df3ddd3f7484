"""Buckets as users hold them: the index of this process, the blobs, and the objects."""
