"""The client half of both DAPs: get-tag, get-data and put-data on a configuration (Alg. 3).

ABD-DAP is EC-DAP with k = 1, whole values for elements and Lists of length 1: the same quorum, the
same maximum, the same rounds. Only the coding and the capacity of a List (ares/dap/version_list.py)
differ, and this class serves both.

Where the published EC-DAP sends delta + 1 elements from every server, get-data asks k servers for
their newest element and the other servers for tags only (a small element always comes along). If
the version to return lacks elements after a short patience, get-data asks servers which listed the
version for the elements, by tag. If the version was trimmed in between, or no version is settled,
the whole round starts over, with backoff, until the deadline, or until a proof that no version can
be put together (ares/dap/reading.py). get-data never returns a version without k of its elements,
nor an older version in its place.

The first k elements of EC hold the value itself: joining them is a single copy, where other
elements take matrices. For large values the servers of the first k elements are therefore asked
first, if they are as ready as the other servers. For small values the order makes no difference,
and all servers take turns.
"""

from collections.abc import ValuesView

from msgspec import Struct

from ares.dap.coding import MakeCoding, coding_for
from ares.dap.reading import (
    UNTIL_DEADLINE,
    DataReplies,
    DecodeAttempts,
    Reading,
    RetryPolicy,
    patience_s,
)
from ares.engine.effects import Gather, Operation, Pause
from ares.engine.phases import GET_DATA, PUT_DATA, phase
from ares.engine.readiness import Readiness, ServerOrder
from ares.model.configuration import Configuration, Successor, latest_named
from ares.model.element import sealed
from ares.model.errors import DecodeFailed, Unavailable, Undecodable
from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import (
    DELETED_LENGTH,
    LEFT_LENGTH,
    DataReply,
    Element,
    GetData,
    GetTag,
    PutData,
    Question,
    TagReply,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import LOST, TOMBSTONE, WITHHELD, Answered, NoBytes, Value

FOLLOW_UP_S = 0.5
FAR_S = 0.1
"""Round trip to servers that are far away, in seconds."""

LARGE_VALUE_BYTES_MIN = 256 * 1024
"""Size of a value from which elements that hold the value itself are preferred."""

_MARKS: dict[int, Answered] = {DELETED_LENGTH: TOMBSTONE, LEFT_LENGTH: LOST}
"""The value of a version without bytes (an empty value has bytes), by its length."""

_LENGTHS = {TOMBSTONE: DELETED_LENGTH, LOST: LEFT_LENGTH}


class DataResult(Struct, frozen=True, gc=False):
    """The result of get-data in a configuration.

    ``highest``: the highest tag named by any server, for a writer. ``length``: bytes of the whole
    value, DELETED_LENGTH or LEFT_LENGTH. ``confirmed``: the version is at a quorum already.
    ``successor``: nextC as the quorum knew it. ``configuration``: the configuration asked.
    ``lasting``: the version was at a quorum before that quorum heard of a successor; every later
    read finds the version, here or wherever its domain moves
    (:func:`ares.registers.operations.at_quorum`).
    """

    tag: Tag
    value: Answered
    length: int
    highest: Tag
    confirmed: bool
    successor: Successor | None
    configuration: ConfigurationId
    lasting: bool = False


class TagResult(Struct, frozen=True, gc=False):
    """The result of get-tag or of put-data in a configuration."""

    tag: Tag
    successor: Successor | None


class DataAccess:
    """The primitives for a configuration, at a client (Alg. 3:1).

    ``readiness``: chooses the servers asked for elements. ``coding``: makes the coding. Raises
    :class:`ares.ConfigurationRefused` if the erasure code is not available on this machine.
    """

    def __init__(
        self, configuration: Configuration, readiness: Readiness, coding: MakeCoding = coding_for
    ) -> None:
        self.configuration = configuration
        self.coding = coding(configuration)
        self._readiness = readiness
        self.holding_value = self.coding.k if configuration.dap == "ec" else 0
        """Number of servers, the first ones, whose elements hold the value itself; 0 where all
        servers do.
        """
        self.large = True
        """True if the value read last was large, as a prediction for the next value.

        The length of a value is unknown before its read.
        """

    @phase("GetTag")
    def get_tag(self, object: ObjectName) -> Operation[TagResult]:
        """Return the highest tag at a quorum (Alg. 3:1-8)."""
        configuration = self.configuration
        order = self._readiness.order(configuration)
        answers = yield Gather(
            configuration, GetTag, "get-tag", arguments=(configuration.id, object), order=order
        )
        replies: ValuesView[TagReply] = answers.values()
        tag = TAG_ZERO
        for reply in replies:
            if reply.tag > tag:
                tag = reply.tag
        return TagResult(tag, latest_named(replies))

    def get_version(
        self,
        object: ObjectName,
        carry: Successor | None = None,
        effort: RetryPolicy = UNTIL_DEADLINE,
    ) -> Operation[DataResult]:
        """Run get-data without the value and return tag and length.

        ``value`` is WITHHELD, unless the value is small and came along. ``carry``: rule R1, servers
        install the successor before they answer. ``effort``: as for :meth:`get_data`.
        """
        return self.get_data(object, carry, effort=effort, needed=0)

    @phase(GET_DATA)
    def get_data(
        self,
        object: ObjectName,
        carry: Successor | None = None,
        held: Tag | None = None,
        confirming: bool = False,
        effort: RetryPolicy = UNTIL_DEADLINE,
        needed: int | None = None,
    ) -> Operation[DataResult]:
        """Return the newest version settled by a quorum, and its value (Alg. 3:9-22).

        ``held``: a version whose value the client has; if no version is newer, no value travels and
        the result is WITHHELD under its tag (the optimised get-data of CoARES). If the successor is
        finalized, the result is WITHHELD under t0. ``confirming``: find out whether the version is
        at a quorum, even if its servers are not the first to answer. ``needed``: number of elements
        asked for, by default the number which makes a value.

        Raises :class:`Undecodable` if no version can be put together, or no version was with this
        ``effort``; :class:`DecodeFailed` when the deadline comes first.
        """
        needed = self.coding.k if needed is None else needed
        looks: DecodeAttempts | None = None
        while True:
            order = self._readiness.order(
                self.configuration, self.holding_value if self.large else 0
            )
            reading = Reading(self.configuration, object, needed, held, confirming)
            arguments = (object, order, needed, carry, held)
            gather = Gather(
                self.configuration,
                self._queries,
                "get-data",
                settled=reading.settled,
                patience_s=effort.patience_s,
                arguments=arguments,
                order=order,
            )
            try:
                answers = yield gather
                if reading.complete or reading.withheld:
                    return self._found(reading, answers)
                named: DataReplies = {}
                if reading.tag is not None:
                    named = yield from self._fetch(object, reading, answers, carry)
                    if reading.complete:
                        return self._found(reading, answers)
                looks, held = looks or DecodeAttempts(effort), None
                yield Pause(looks.fail(reading, answers, named), retry=not effort.looks_max)
            except Unavailable as error:
                if looks is None:
                    raise
                why = (
                    f"asked {looks.failed} times, and each time too few elements of one version "
                    "were at hand"
                )
                raise DecodeFailed(object, why) from error

    @phase(PUT_DATA)
    def put_data(self, object: ObjectName, tag: Tag, value: Value) -> Operation[TagResult]:
        """Store a version at a quorum (Alg. 3:23-31)."""
        id = self.configuration.id
        elements = self.elements(object, tag, value)
        if self.configuration.dap == "abd":
            answers = yield Gather(
                self.configuration, PutData, "put-data", arguments=(id, object, tag, elements[0])
            )
        else:
            answers = yield Gather(
                self.configuration, _puts, "put-data", arguments=(id, object, tag, elements)
            )
        return TagResult(tag, latest_named(answers.values()))

    def elements(self, object: ObjectName, tag: Tag, value: Value) -> list[Element]:
        """Return the sealed elements of a version, one for each server; with ABD, one for all."""
        id = self.configuration.id
        length, whole = (
            (_LENGTHS[value], b"") if isinstance(value, NoBytes) else (len(value), value)
        )
        if self.configuration.dap == "abd":
            return [sealed(id, object, tag, 0, length, () if length < 0 else (whole,))]
        return [
            sealed(id, object, tag, index, length, parts)
            for index, parts in enumerate(self.coding.encode(whole))
        ]

    def query(
        self,
        call: CallId,
        object: ObjectName,
        element: bool,
        wanted: Tag | None,
        carry: Successor | None,
        held: Tag | None,
    ) -> Question:
        """Return the query for a server."""
        return GetData(call, self.configuration.id, object, element, wanted, carry, held)

    def _queries(
        self,
        call: CallId,
        object: ObjectName,
        order: ServerOrder,
        needed: int,
        carry: Successor | None,
        held: Tag | None,
    ) -> list[Question]:
        """Return the query for each server.

        The first ``needed`` servers are asked for their elements, however large.
        """
        query = self.query
        queries = [query(call, object, False, None, carry, held)] * self.configuration.n
        with_element = query(call, object, True, None, carry, held)
        for position in order.positions[:needed]:
            queries[position] = with_element
        return queries

    def _fetch(
        self, object: ObjectName, reading: Reading, answers: DataReplies, carry: Successor | None
    ) -> Operation[DataReplies]:
        """Ask servers that listed the settled tag for its element, by tag; return their answers.

        Elements that no server sends stay missing.
        """
        holders = reading.holders(answers)
        lacking = max(reading.needed - len(reading.elements), 1)
        if len(holders) < lacking:
            return {}

        def enough(more: DataReplies) -> bool:
            return sum(1 for reply in more.values() if reply.element is not None) >= lacking

        arguments, give_up_s = (
            (object, True, reading.tag, carry, None),
            FOLLOW_UP_S + patience_s(answers, FAR_S),
        )
        gather = Gather(
            self.configuration,
            self.query,
            "get-data",
            holders,
            lacking,
            enough,
            patience_s,
            give_up_s,
            arguments,
        )
        try:
            more: dict[ServerId, DataReply] = yield gather
        except Unavailable:
            return {}
        for reply in more.values():
            if reply.element is not None:
                reading.keep(reply.element)
        return more

    def _found(self, reading: Reading, answers: DataReplies) -> DataResult:
        highest = reading.highest(answers)
        if reading.withheld:
            return DataResult(
                TAG_ZERO,
                WITHHELD,
                DELETED_LENGTH,
                highest,
                False,
                reading.successor,
                self.configuration.id,
            )
        tag, length = reading.tag, reading.length
        assert tag is not None
        assert length is not None
        value = _MARKS.get(length, WITHHELD)
        self.large = length >= LARGE_VALUE_BYTES_MIN
        if value is WITHHELD and not reading.unchanged and len(reading.elements) >= self.coding.k:
            value = self._decoded(reading, tag, length)
        confirmed = reading.confirmed(answers)
        lasting = confirmed and reading.lasting(answers)
        return DataResult(
            tag,
            value,
            length,
            highest,
            confirmed,
            reading.successor,
            self.configuration.id,
            lasting,
        )

    def _decoded(self, reading: Reading, tag: Tag, length: int) -> bytes:
        """Decode and return the value (Alg. 3:18).

        If intact elements do not decode, they were not made from a value: raises
        :class:`Undecodable`.
        """
        try:
            return self.coding.decode(length, reading.elements)
        except DecodeFailed as error:
            servers = ", ".join(
                self.configuration.server_ids[index]
                for index in sorted(reading.elements)[: self.coding.k]
            )
            raise Undecodable(
                reading.object,
                f"the elements of {servers} under {tag} are no value: {error.why}",
                tag,
                True,
                False,
            ) from error


def _puts(
    call: CallId, id: ConfigurationId, object: ObjectName, tag: Tag, elements: list[Element]
) -> list[Question]:
    return [PutData(call, id, object, tag, element) for element in elements]
