"""The Consensus port: a common contract of its implementations, and Raft under faults."""
