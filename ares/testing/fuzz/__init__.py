"""Garbage by the million on live ports."""
