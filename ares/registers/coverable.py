"""Coverable operations: writes that succeed only on the latest version.

See CoARES; ARES II section 3, Extension 1.

A version is a tag. ``cvr_write`` turns into a read when the given version is not the latest version
found in its first phase. This is *weak* coverability: two concurrent writes over the same version
may both succeed, and the write with the higher tag stands; excluding this case would take consensus
for every write. Hence this is not compare-and-swap. A write which began after the end of another
write never misses the earlier write.

Phase one is get-data. With the optimised DAPs (``Switches.optimised``) no value held by the client
travels, and put-data is left out for a tag known to be at a quorum (ares/dap/cache.py).
"""

from msgspec import Struct

from ares.dap.primitives import DataAccess, DataResult
from ares.engine.effects import Operation, Together
from ares.engine.phases import PHASE_1, READ_OBJECT, WRITE_OBJECT, phase
from ares.model.identity import ObjectName
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE, WITHHELD, Answered, Value
from ares.reconfig.traversal import read_config
from ares.reconfig.view import View
from ares.registers.operations import at_quorum, newest, propagate, query, settle_read, write_above


class CoverableResult(Struct, frozen=True):
    """The result of a coverable write.

    ``changed``: the write took place, as version ``tag`` over ``base``. Otherwise ``tag`` and
    ``value`` are the latest.
    """

    changed: bool
    tag: Tag
    value: Answered
    base: Tag | None = None


@phase(READ_OBJECT)
def cvr_read(view: View, object: ObjectName, held: Tag | None = None) -> Operation[DataResult]:
    """Return the latest version and its value; WITHHELD for ``held``, held by the caller."""
    held = held if view.switches.optimised else None
    answers = yield from query(view, lambda dap, object: dap.get_data(object, held=held), object)
    return (yield from _complete(view, object, answers, held))


@phase(WRITE_OBJECT)
def cvr_write(
    view: View,
    object: ObjectName,
    value: Value,
    version: Tag | None,
    number: int = 0,
    beside: ObjectName | None = None,
) -> Operation[CoverableResult]:
    """Store ``value`` if ``version`` is the latest (None: if the object is absent); otherwise read.

    ``number``: the number of the tag; no write takes place if a number as high was taken.
    ``beside``: another object, read at the same time; the tag's number is two above the number of
    that object's version, or of the latest version if higher.
    """
    held = version if view.switches.optimised else None
    taken = view.tags.begin(object)
    try:
        answers, others = yield from _first_phase(view, object, held, beside)
        latest = newest(answers)
        late = number and max(latest.highest.number, taken.number) >= number
        if late or (
            latest.tag != version and (version is not None or latest.value is not TOMBSTONE)
        ):
            found = yield from _complete(view, object, answers, held)
            return CoverableResult(False, found.tag, found.value)
        highest = (
            max(latest.tag.number, number - 1)
            if beside is None
            else max(latest.tag.number, others) + 1
        )
        tag, configuration = yield from write_above(view, object, value, highest, taken)
    finally:
        view.tags.end(object, taken)
    view.memory.settle(object, configuration.id, tag)
    return CoverableResult(True, tag, value, latest.tag)


@phase(PHASE_1)
def _first_phase(
    view: View, object: ObjectName, held: Tag | None, beside: ObjectName | None
) -> Operation[tuple[list[DataResult], int]]:
    """Run get-data; return the answers and the number of ``beside``.

    ``beside`` is completed as in any read.
    """
    answers: list[DataResult] = []
    number = 0

    def look_at_object() -> Operation[None]:
        answers.extend(
            (yield from query(view, lambda dap, object: dap.get_data(object, held=held), object))
        )

    def look_beside(other: ObjectName) -> Operation[None]:
        nonlocal number
        found, _ = yield from settle_read(
            view, other, (yield from query(view, DataAccess.get_data, other))
        )
        number = found.tag.number

    if beside is None:
        yield from look_at_object()
    else:
        yield Together(iter((look_at_object(), look_beside(beside))), 2)
    return answers, number


@phase(WRITE_OBJECT)
def create(view: View, object: ObjectName, value: bytes) -> Operation[Tag]:
    """Store the first version of an object whose name no other client uses.

    No version can exist: this is put-data alone.
    """
    taken = view.tags.begin(object)
    try:
        tag, configuration = yield from write_above(view, object, value, 0, taken)
    finally:
        view.tags.end(object, taken)
    view.memory.settle(object, configuration.id, tag)
    return tag


def mention(view: View, object: ObjectName) -> Operation[None]:
    """Make an object known that may never have been written.

    The tombstone's tag is below every write: any written version stands, and listings show the
    name.
    """
    yield from propagate(view, object, Tag(0, view.client), TOMBSTONE)


@phase(WRITE_OBJECT)
def advance(view: View, object: ObjectName, floor: int, by: int) -> Operation[Tag]:
    """Write a tombstone with a number ``by`` above the latest number and above ``floor``.

    The object is always absent; its tag is its only information.
    """
    taken = view.tags.begin(object)
    try:
        answers = yield from query(view, DataAccess.get_tag, object)
        tag, _ = yield from write_above(
            view, object, TOMBSTONE, max(newest(answers).tag.number, floor) + by, taken
        )
    finally:
        view.tags.end(object, taken)
    return tag


@phase(READ_OBJECT)
def read_versioned(view: View, object: ObjectName) -> Operation[DataResult]:
    """Run ``cvr_read`` with the values remembered by this client."""
    kept = view.memory.value(object)
    found = yield from cvr_read(view, object, kept[0] if kept is not None else None)
    if found.value is WITHHELD:
        assert kept is not None, "only what is held is withheld"
        return DataResult(
            found.tag,
            kept[1],
            found.length,
            found.highest,
            found.confirmed,
            found.successor,
            found.configuration,
        )
    _keep(view, object, found.tag, found.value)
    return found


@phase(WRITE_OBJECT)
def write_versioned(
    view: View, object: ObjectName, value: Value, version: Tag | None
) -> Operation[CoverableResult]:
    """Run ``cvr_write`` and remember the result."""
    covered = yield from cvr_write(view, object, value, version)
    _keep(view, object, covered.tag, covered.value)
    return covered


def _keep(view: View, object: ObjectName, tag: Tag, value: Answered) -> None:
    if view.switches.optimised and value is not WITHHELD:
        view.memory.keep(object, tag, value)


def _complete(
    view: View, object: ObjectName, answers: list[DataResult], held: Tag | None
) -> Operation[DataResult]:
    """End as a read does: the version is at a quorum of the last configuration or written there.

    A version which has to be written back, with its value held by the client, is read once more,
    with its value; likewise a version below ``held``.
    """
    found = newest(answers)
    if found.value is WITHHELD:
        if found.tag == held and (yield from _need_not_write_back(view, object, answers, found)):
            return found
        answers = yield from query(view, DataAccess.get_data, object)
    found, configuration = yield from settle_read(view, object, answers)
    view.memory.settle(object, configuration, found.tag)
    return found


def _need_not_write_back(
    view: View, object: ObjectName, answers: list[DataResult], found: DataResult
) -> Operation[bool]:
    """Return whether the found version needs no write back.

    Plain ARES looks for a new configuration after put-data even when the put itself is left out.
    """
    last = answers[-1]
    there = at_quorum(answers, found) if view.switches.fast_read else None
    if (
        there is None
        and last.tag == found.tag
        and last.successor is None
        and view.memory.at_quorum(object, last.configuration, found.tag)
    ):
        there = last.configuration
    if there is None:
        return False
    view.memory.settle(object, there, found.tag)
    if not view.switches.piggyback and not view.switches.fast_read:
        yield from read_config(view)
        return view.sequence.last_known.id == last.configuration
    return True
