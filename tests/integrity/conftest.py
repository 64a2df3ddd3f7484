"""Servers that a test left go before the next one: every mapped file takes a descriptor, and a server that starts keeps what garbage there is."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _tidied():
    yield
    gc.collect()
