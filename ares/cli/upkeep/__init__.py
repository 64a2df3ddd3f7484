"""Commands about processes that run."""
