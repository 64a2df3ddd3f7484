"""An object that cannot be moved is left behind, if somebody asks for that: a mark takes its place, which says that its value is lost.

The mark is a version of the object, LOST for a value, in the configuration that is being moved to. So it is at a quorum before that is finalized, is
journaled, moves on with its domain, is listed by `ls` and by `status`, makes a read fail in so many words, and gives way to any later write or
delete. It has the number of the highest tag t that can have been completed in the sources (:func:`ares.dap.decidable.newest_possible`), and the
writer 0, which no client is. Why that tag:

- A write that begins later takes a number above it: it meets the mark, or asks the sources, where k servers of every quorum had t or more. So
  whatever a completed read took from the sources, and a late one writes back, is below every such write, and replaces the mark at most. (With a
  lower mark it could replace what was written since.)
- What was completed in the sources is not above t: nobody reads something older in place of what is lost.
- A write that is under way ends in the target, since the mover's looks have installed the successor (rule R1). If its number is that of the mark or
  higher, it stands. If it is lower, it is older than something that may have been completed, and is taken to have come before that.
- What may have reached some servers and was never completed can be above t. It is a write that has not ended, whoever completes it one day.
- Movers at the same time, or one after the other, put the same value under the mark's tag, whatever each of them saw.

It is put only if what the servers said proves that no version can be decoded (ares/dap/looks.py), or if the servers of the target refuse the tag, by
which the object could not be written there either. Then the mark has a number that they take, NUMBER_FLOOR: no object gets there by being written,
and what is above is refused from everybody. A version that a quorum of the target has already, and that is not older than t, needs no mark.
"""

from ares.model.configuration import Configuration
from ares.model.identity import ClientId, ObjectName
from ares.model.tag import NUMBER_FLOOR, Tag
from ares.model.value import LOST
from ares.operation.effects import Operation
from ares.reconfig.view import View

NOBODY = ClientId(0)


REFUSED_MARK = Tag(NUMBER_FLOOR, NOBODY)
"""The mark of an object whose tag servers do not take."""


def mark_tag(newest: Tag) -> Tag:
    """The mark of an object of which nothing newer than ``newest`` can have been completed."""
    return Tag(max(newest.number, 1), NOBODY)


def leave_behind(view: View, target: Configuration, object: ObjectName, tag: Tag) -> Operation[None]:
    """Put the mark at a quorum of ``target``."""
    yield from view.dap(target).put_data(object, tag, LOST)
