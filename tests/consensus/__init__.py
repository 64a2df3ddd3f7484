"""The Consensus port: one contract over its implementations, and what Raft must survive."""
