"""Clients take turns at a server: what one of them asked is answered for TURN_S at a stretch, and its rest stands in line until others had theirs.

A request of thirty bytes may take a server milliseconds, and a batch has room for thousands. What is left of a client's turn waits here, and nothing
more is read from that client meanwhile where the transport can see to that. Nearly always a turn is long enough for all that came, and nobody stands
in line.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import length_hint

from ares.model.codec import Frame
from ares.model.messages import AnyMessage, Describe, GetData, GetTag, PutData, ReadConfig

TURN_S = 0.005
TURN_MESSAGES_MAX = 512
"""A turn ends at either, and then its replies are sent: those with small values are 8 KiB each."""

GROUP_MESSAGES = 4
"""The clock is looked at before so many messages."""

QUICK: frozenset[type[AnyMessage]] = frozenset({GetTag, GetData, PutData, ReadConfig})
"""A batch of these alone is answered without a look at the clock, which costs a fifth of answering it: TURN_MESSAGES_MAX of them take about a
millisecond. Data that must be verified on the way takes longer, and the handler sees to that (ares/server/host.py)."""

LINE_BATCHES_MAX = 256
"""Of a client that stands in line and from which more comes."""

NOTHING: Sequence[AnyMessage] = ()


class Line:
    """What came from one client and is not answered: the ``rest`` of what was read, and batches that ``came`` later. ``bytes``: what all of it was.

    ``began``: the batches that were read.
    """

    __slots__ = ("bytes", "came", "rest")

    def __init__(self, rest: Iterator[AnyMessage], began: Sequence[Sequence[Frame]]) -> None:
        self.rest = rest
        self.came: deque[Sequence[Frame]] = deque()
        self.bytes = bytes_of(began)

    def __bool__(self) -> bool:
        """Whether there is more."""
        return bool(self.came) or length_hint(self.rest) > 0


class Turn:
    """One that begins at ``begin_s``, of the clock time.perf_counter."""

    __slots__ = ("_ended", "_until_s")

    def __init__(self, begin_s: float) -> None:
        self._until_s = begin_s + TURN_S
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether it has ended: by the clock, with what may have a large reply (it leaves before another is made), or by a handler that stopped."""
        return self._ended or time.perf_counter() >= self._until_s

    def of(self, messages: Iterator[AnyMessage]) -> Iterator[AnyMessage]:
        """Those of ``messages`` whose turn it is, at least one; the others stay there."""
        self._ended = True
        for _ in range(TURN_MESSAGES_MAX // GROUP_MESSAGES):
            for message in islice(messages, GROUP_MESSAGES):
                yield message
                if type(message) is Describe and not message.brief:
                    return
            if not length_hint(messages):
                self._ended = False
                return
            if time.perf_counter() >= self._until_s:
                return


def bytes_of(came: Sequence[Sequence[Frame]]) -> int:
    """Of all frames of these batches."""
    return sum([len(frames[0]) if len(frames) == 1 else sum(map(len, frames)) for frames in came])
