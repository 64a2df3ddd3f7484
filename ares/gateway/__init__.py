"""The gateway: S3 over HTTP as a view of the buckets' index."""
