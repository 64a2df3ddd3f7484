"""The changes of a bucket, in the order of the log."""
