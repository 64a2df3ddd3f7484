"""The upkeep of buckets by a process: sessions, garbage, snapshots, expiry."""
