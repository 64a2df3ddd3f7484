"""Tests of a checkout: how it installs, builds its compiled core, and names its version."""
