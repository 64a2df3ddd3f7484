"""The operations of S3, and watches, on the buckets of a cluster: a coroutine for each."""
