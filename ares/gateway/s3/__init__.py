"""S3's language: requests, documents, headers and rules. Pure, without I/O."""
