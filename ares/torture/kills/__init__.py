"""See ares/torture/__init__.py."""
