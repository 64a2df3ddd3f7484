"""The simulator by the name that scripts know: ``python -P -m ares.sim``."""
