"""Commands about processes that run: status, scrub, log-level."""
