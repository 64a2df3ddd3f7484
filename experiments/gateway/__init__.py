"""Measurements of the gateway of S3 beside a peer (docs/s3.md)."""
