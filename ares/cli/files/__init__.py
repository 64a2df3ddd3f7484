"""Commands about large files."""
