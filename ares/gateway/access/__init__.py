"""Access of S3 clients: keys, sealed secrets, grants, canned ACLs."""
