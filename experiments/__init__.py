"""Measurements. Every claim of speed in the documents is a number that one of these scripts printed."""
