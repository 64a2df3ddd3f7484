"""Clients take turns at a server: what one of them asked is answered for TURN_S at a stretch, and its rest stands in line until others had theirs.

A request of thirty bytes may take a server milliseconds, and a batch has room for thousands. What is left of a client's turn waits here, and nothing
more is read from that client meanwhile where the transport can see to that. Nearly always a turn is long enough for all that came, and nobody stands
in line.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import length_hint

from ares.codec import Frame
from ares.messages import AnyMessage

TURN_S = 0.005
TURN_MESSAGES_MAX = 512
"""A turn ends at either, and then its replies are sent: those with small values are 8 KiB each."""

GROUP_MESSAGES = 4
"""The clock is looked at before so many messages. With 8, a small one would cost 0.04 µs less, and descriptions keep others waiting twice as long."""

LINE_BATCHES_MAX = 256
"""Of a client that stands in line and from which more comes."""

NOTHING: Sequence[AnyMessage] = ()


class Line:
    """What came from one client and is not answered: the ``rest`` of a batch, and batches that ``came`` after it. ``bytes``: what all of it was."""

    __slots__ = ("bytes", "came", "rest")

    def __init__(self, rest: Iterator[AnyMessage], came: Sequence[Sequence[Frame]]) -> None:
        self.rest = rest
        self.came = deque(came[1:])
        self.bytes = bytes_of(came)

    def __bool__(self) -> bool:
        """Whether there is more."""
        return bool(self.came) or length_hint(self.rest) > 0


def within(messages: Iterator[AnyMessage], until_s: float) -> Iterator[AnyMessage]:
    """A group of ``messages``, and as many more as begin before ``until_s`` (time.perf_counter); the others stay there."""
    return chain.from_iterable(_groups(messages, until_s))


def _groups(messages: Iterator[AnyMessage], until_s: float) -> Iterator[Sequence[AnyMessage]]:
    for _ in range(TURN_MESSAGES_MAX // GROUP_MESSAGES):
        group = tuple(islice(messages, GROUP_MESSAGES))
        yield group
        if len(group) < GROUP_MESSAGES or time.perf_counter() >= until_s:
            return


def bytes_of(came: Sequence[Sequence[Frame]]) -> int:
    """Of all frames of these batches."""
    return sum([len(frames[0]) if len(frames) == 1 else sum(map(len, frames)) for frames in came])
