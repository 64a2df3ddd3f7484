"""The scenario `bucket`."""
