"""The command demo."""
