"""Is an object there? Asked for a listing, which must not fail, nor wait, because of one object that is in a bad way."""

from contextlib import suppress

from ares.dap.looks import BRIEF
from ares.dap.primitives import Found
from ares.model.errors import ElementRefused, NotAuthorized, Undecodable
from ares.model.identity import ObjectName
from ares.model.value import TOMBSTONE, WITHHELD
from ares.objects.answers import at_quorum, newest
from ares.objects.operations import propagate, query
from ares.operation.effects import Operation
from ares.reconfig.view import View


def is_there(view: View, object: ObjectName) -> Operation[bool]:
    """Whether a reader finds something. What was found is written back, as a reader does, so that the next listing says the same.

    What cannot be decoded is there: a reader is told so, and somebody has to write or delete it. What this client, or any, may not write back is
    taken as it was found.
    """
    try:
        answers = yield from query(view, lambda dap, object: dap.get_version(object, effort=BRIEF), object)
        found = newest(answers)
        if at_quorum(answers, found) is None:
            answers = yield from query(view, lambda dap, object: dap.get_data(object, effort=BRIEF), object)
            found = newest(answers)
            yield from _write_back(view, object, answers, found)
    except Undecodable:
        return True
    return found.value is not TOMBSTONE


def _write_back(view: View, object: ObjectName, answers: list[Found], found: Found) -> Operation[None]:
    assert found.value is not WITHHELD, "the last configuration of a traversal has no finalized successor"
    if at_quorum(answers, found) is None:
        with suppress(ElementRefused, NotAuthorized):
            yield from propagate(view, object, found.tag, found.value)
