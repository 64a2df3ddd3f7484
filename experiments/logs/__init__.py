"""Measurements of the shared log beside the thesis of Ikaria and other logs (docs/log.md)."""
