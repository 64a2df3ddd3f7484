"""Commands about domains and their configurations."""
