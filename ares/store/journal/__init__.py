"""The journal: an append log of segments, with group commit."""
