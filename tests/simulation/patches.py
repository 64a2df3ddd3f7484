"""Several patches as one: a control may need more than one change."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any


@contextmanager
def together(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield
