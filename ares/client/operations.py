"""Read, write, delete and stat of one object, in both generations (Alg. 1).

ARES II (piggyback) starts at the last finalized configuration it knows and follows the successors that replies carry. Plain ARES learns the
sequence in rounds of their own, before and after. Everything else is the same, so the generations differ in two functions: ``_query`` and
``_propagate``.
"""

from collections.abc import Callable
from typing import TypeVar

from ares.configuration import Configuration
from ares.dap.client import DataAccess, Found, FoundTag
from ares.effects import Operation
from ares.errors import ObjectNotFound, Superseded, Uncertain
from ares.identity import ObjectName
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View
from ares.tag import TAG_ZERO, Tag
from ares.value import TOMBSTONE, WITHHELD, Value

Answer = TypeVar("Answer", Found, FoundTag)
Ask = Callable[[DataAccess], Operation[Answer]]


def read(view: View, object: ObjectName) -> Operation[Found]:
    """The newest version and its value; TOMBSTONE for an absent object (Alg. 1:31-48).

    Fast read: if a quorum of the last configuration holds the version and names no successor, it need not be written back. Nor need t0, ever.
    """
    answers = yield from _query(view, lambda dap: dap.get_data(object))
    last, found = answers[-1], newest(answers)
    at_quorum = last.confirmed and last.tag == found.tag and last.successor is None
    if found.tag == TAG_ZERO or (view.switches.fast_read and at_quorum):
        return found
    assert found.value is not WITHHELD, "the last configuration of a traversal has no finalized successor"
    yield from _propagate(view, object, found.tag, found.value)
    return found


def write(view: View, object: ObjectName, value: Value) -> Operation[Tag]:
    """Store ``value`` under a new tag, which is returned (Alg. 1:7-24)."""
    answers = yield from _query(view, lambda dap: dap.get_tag(object))
    tag = yield from _write_above(view, object, value, max(answer.tag for answer in answers))
    return tag


def delete(view: View, object: ObjectName) -> Operation[Tag]:
    """Write a tombstone. Raises :class:`ObjectNotFound`, and writes nothing, if the object is absent."""
    answers = yield from _query(view, lambda dap: dap.get_version(object))
    found = newest(answers)
    if found.value is TOMBSTONE:
        if found.tag != TAG_ZERO:
            yield from _propagate(view, object, found.tag, TOMBSTONE)
        raise ObjectNotFound(object, view.domain)
    tag = yield from _write_above(view, object, TOMBSTONE, max(answer.highest for answer in answers))
    return tag


def stat(view: View, object: ObjectName) -> Operation[Found]:
    """The newest version without its value, if a quorum holds it; otherwise as ``read``, which writes it back."""
    answers = yield from _query(view, lambda dap: dap.get_version(object))
    last, found = answers[-1], newest(answers)
    if last.confirmed and last.tag == found.tag and last.successor is None:
        return found
    found = yield from read(view, object)
    return found


def newest(answers: list[Found]) -> Found:
    """The highest version that was not left to a successor (Alg. 1:37). Such an answer has tag t0, and loses ties to later ones."""
    return max(reversed(answers), key=lambda found: found.tag)


def _write_above(view: View, object: ObjectName, value: Value, highest: Tag) -> Operation[Tag]:
    tag = Tag(max(highest.number, view.spent.get(object, 0)) + 1, view.client)
    view.spent[object] = tag.number
    try:
        yield from _propagate(view, object, tag, value)
    except Uncertain as error:
        error.may_have_taken_effect = True
        raise
    del view.spent[object]
    return tag


def _query(view: View, ask: Ask[Answer]) -> Operation[list[Answer]]:
    """Ask every configuration from the last finalized to the last; at least one answer, the last configuration's at the end."""
    if not view.switches.piggyback:
        answers = yield from _query_plain(view, ask)
        return answers
    answers = []
    configuration: Configuration | None = view.sequence.last_finalized
    while configuration is not None:
        try:
            answer = yield from ask(view.dap(configuration))
        except Superseded as superseded:
            configuration = detour(view, superseded)
            continue
        answers.append(answer)
        configuration = yield from find_next_config(view, configuration, answer.successor)
    return answers


def _query_plain(view: View, ask: Ask[Answer]) -> Operation[list[Answer]]:
    """Plain ARES: read-config, then every configuration found. One that was retired meanwhile has no values to give: read-config again."""
    answers: list[Answer] = []
    yield from read_config(view)
    todo = view.sequence.active
    while todo:
        configuration = todo.pop(0)
        try:
            answer = yield from ask(view.dap(configuration))
        except Superseded as superseded:
            detour(view, superseded)
            yield from read_config(view)
            todo = view.sequence.active
            continue
        answers.append(answer)
        if not todo and answer.successor is not None and answer.successor.finalized:
            yield from read_config(view)
            todo = [later for later in view.sequence.active if later.index > configuration.index]
    return answers


def _propagate(view: View, object: ObjectName, tag: Tag, value: Value) -> Operation[None]:
    """put-data in the last configuration, and in every one that appears meanwhile (Alg. 1:19-23)."""
    configuration: Configuration | None = view.sequence.last_known
    while configuration is not None:
        try:
            answer = yield from view.dap(configuration).put_data(object, tag, value)
        except Superseded as superseded:
            configuration = detour(view, superseded)
            continue
        if view.switches.piggyback:
            configuration = yield from find_next_config(view, configuration, answer.successor)
        else:
            yield from read_config(view)
            last = view.sequence.last_known
            configuration = last if last.index > configuration.index else None
