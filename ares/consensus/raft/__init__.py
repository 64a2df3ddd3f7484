"""Consensus by PySyncObj, members of this project."""
