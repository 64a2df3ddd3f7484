"""Snapshots of the index: the rows of a position while the index goes on, and their pieces."""
