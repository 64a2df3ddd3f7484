"""What the papers claim, beside what was measured here: claims as data (claims/*.toml), an evaluator, and the page docs/reproduction.md."""
