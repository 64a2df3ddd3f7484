"""Rules for the expiry of objects, and the tags of objects."""
