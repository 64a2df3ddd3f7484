"""Claims of the papers beside our measurements.

The package has claims as data (claims/*.toml), an evaluator, and the page docs/reproduction.md.
"""
