"""The common part of EC-DAP and ABD-DAP as published: rounds, and measured steps."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ares.dap.coding import MakeCoding, coding_for
from ares.engine.effects import Gather, Operation
from ares.engine.phases import PUT_DATA, phase
from ares.engine.recording import Computed
from ares.model.configuration import Configuration, Successor
from ares.model.element import sealed
from ares.model.identity import CallId, ObjectName, ServerId
from ares.model.messages import (
    DELETED_LENGTH,
    Element,
    GetTag,
    ListReply,
    PutData,
    QueryList,
    Question,
)
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE, WITHHELD, Answered, NoBytes, Value

Cs = list[Successor | None]
"""The nextC in each server's answer; None for bottom."""

BOTTOM = WITHHELD
"""The value returned by a get-data from a configuration with a finalized successor."""

Found = tuple[Tag, Answered]
"""A tag and the tag's value: TOMBSTONE is v0, BOTTOM is no value."""

Measure = Callable[[str], AbstractContextManager[object]]
"""Measures a step of get-data under the step's name in the papers' figures."""


def unmeasured(step: str) -> AbstractContextManager[object]:
    """Run a step without a measurement."""
    return nullcontext()


def measure_into(computed: deque[Computed], clock: Callable[[], float]) -> Measure:
    """Return a measure for steps shown by a recording (ares/engine/recording.py)."""

    @contextmanager
    def measure(step: str) -> Iterator[None]:
        began_s = clock()
        yield
        computed.append((step, began_s, clock()))

    return measure


class PublishedDap:
    """The primitives of a configuration c, at each process (Alg. 3:1).

    ``coding``: makes the code. ``measure``: measures the steps of get-data. ``whole``: asks for
    List, and never for List' (Alg. 4:10-12), which came with the piggyback.
    """

    def __init__(
        self,
        c: Configuration,
        coding: MakeCoding = coding_for,
        measure: Measure = unmeasured,
        whole: bool = False,
    ) -> None:
        self.c = c
        self.whole = whole
        self.coding = coding(c)
        self.measure = measure

    @phase("GetTag")
    def get_tag(self, object: ObjectName) -> Operation[tuple[Tag, Cs]]:
        """Return the maximum of a quorum's tags, and their nextC (Alg. 3:2-8)."""
        replies = yield Gather(  # Alg. 3:3-4: send QUERY-TAG, until a quorum answered
            self.c, GetTag, "get-tag", arguments=(self.c.id, object)
        )
        found: Cs = [reply.successor for reply in replies.values()]  # Alg. 3:5
        t_max = max(reply.tag for reply in replies.values())  # Alg. 3:6
        return t_max, found  # Alg. 3:7

    def query_list(
        self, object: ObjectName, carry: Successor | None
    ) -> Operation[dict[ServerId, ListReply]]:
        """Send QUERY-LIST to all servers; return the Lists of a quorum (Alg. 3:10-11).

        ``carry``: the successor of rule R1, which the paper lacks; None: the rule is off, as
        printed.
        """
        arguments = (self.c.id, object, carry, self.whole, None, self.held(object))
        replies = yield Gather(self.c, QueryList, "get-data", arguments=arguments)
        return dict(replies)

    def held(self, object: ObjectName) -> Tag | None:
        """Return the tag of the value that servers need not send: none, but in CoARES."""
        return None

    def get_data(
        self, object: ObjectName, carry: Successor | None = None
    ) -> Operation[tuple[Found, Cs]]:
        """Return the maximum pair of a quorum, and the quorum's nextC."""
        raise NotImplementedError

    @phase(PUT_DATA)
    def put_data(self, object: ObjectName, tag: Tag, value: Value) -> Operation[Cs]:
        """Store the pair at a quorum; return the quorum's nextC (Alg. 3:23-31)."""
        data = value if isinstance(value, bytes) else b""
        length = DELETED_LENGTH if isinstance(value, NoBytes) else len(data)
        elements = [  # Alg. 3:24: e_i = Phi_i(v)
            sealed(
                self.c.id, object, tag, self.index(position), length, () if length < 0 else parts
            )
            for position, parts in enumerate(self.coding.encode(data))
        ]
        replies = yield Gather(  # Alg. 3:25, 3:26-28: to each server, until a quorum
            self.c, put_requests, "put-data", arguments=(self.c, object, tag, elements)
        )
        return [reply.successor for reply in replies.values()]  # Alg. 3:29-30

    def index(self, position: int) -> int:
        """Return the index of the element of the server at ``position``."""
        raise NotImplementedError

    def decode(self, elements: list[Element]) -> bytes | NoBytes:
        """Return the value of these elements of the same tag; v0 is TOMBSTONE."""
        length = elements[0].length
        if length == DELETED_LENGTH:
            return TOMBSTONE
        return self.coding.decode(length, {element.index: element.parts for element in elements})


def put_requests(
    call: CallId, c: Configuration, object: ObjectName, tag: Tag, elements: list[Element]
) -> list[Question]:
    return [PutData(call, c.id, object, tag, element) for element in elements]
