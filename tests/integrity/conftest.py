"""Removal of a test's servers before the next test.

Every mapped file takes a descriptor, and a starting server freezes the existing garbage.
"""

import gc

import pytest


@pytest.fixture(autouse=True)
def _tidied():
    yield
    gc.collect()
