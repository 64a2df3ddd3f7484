"""The scenario `log`."""
