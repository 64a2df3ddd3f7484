"""Rules that a bucket keeps: access from pages of the web, and the expiration of objects."""
