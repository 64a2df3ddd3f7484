"""The signatures of S3's requests, bodies in signed chunks, and checksums of objects."""
