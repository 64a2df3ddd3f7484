"""The order of tags: a promise of ares, stronger than linearizability.

See ARES II section 2, A1 to A3. Every operation that returned tells the tag that it wrote or read.
The tag of an operation is at least as high as the tag of every operation on the key that had ended
before it began, and strictly higher if the operation is a write (or delete); a tag belongs to a
single write and hence to a single value; tag zero is the tag of the initial value, "absent". A
write of unknown outcome may tell the chosen tag. Operations without a tag are not judged.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ares.model.tag import TAG_ZERO
from ares.testing.verify.history import Event, Pair, Violation, shown
from ares.testing.verify.register import Contradiction, by_key, is_write, named, response, written

ZERO_TAG: Pair = (TAG_ZERO.number, TAG_ZERO.writer)


class _Tagged(NamedTuple):
    tag: Pair
    event: Event


def check_tags(events: Iterable[Event]) -> list[Violation]:
    """Return the breaches of the order of tags; at most two violations for an operation."""
    violations: list[Violation] = []
    for key, own in by_key(events).items():
        tagged = [
            _Tagged(event.tag, event) for event in own if event.tag is not None and _counts(event)
        ]
        violations += [found.on(key) for found in (*_shared(tagged), *_disordered(tagged))]
    return violations


def _counts(event: Event) -> bool:
    return event.outcome == "ok" or (event.outcome == "unknown" and is_write(event))


def _shared(tagged: Sequence[_Tagged]) -> Iterator[Contradiction]:
    """Yield tags with two writes, or with two values."""
    owners: dict[Pair, Event] = {}
    for tag, event in sorted(tagged, key=lambda one: not is_write(one.event)):
        # writes first: the reader that disagrees with the write is reported
        owner = owners.setdefault(tag, event)
        if tag == ZERO_TAG and (is_write(event) or event.value is not None):
            yield Contradiction(f"tag {shown(tag)} is that of the initial value, absent", (event,))
        elif owner is not event and is_write(event):
            yield Contradiction(f"tag {shown(tag)} belongs to two writes", (owner, event))
        elif written(owner) != written(event):
            one, other = sorted((named(written(owner)), named(written(event))))
            yield Contradiction(
                f"tag {shown(tag)} belongs to two values, {one} and {other}", (owner, event)
            )


def _disordered(tagged: Sequence[_Tagged]) -> Iterator[Contradiction]:
    """Yield operations with a tag too low for the operations that had ended before."""
    ended = sorted(tagged, key=lambda one: response(one.event))
    count, highest = 0, None
    for tag, event in sorted(tagged, key=lambda one: one.event.invoked):
        while count < len(ended) and response(ended[count].event) < event.invoked:
            if highest is None or highest.tag < ended[count].tag:
                highest = ended[count]
            count += 1
        if highest is not None and (tag < highest.tag or (tag == highest.tag and is_write(event))):
            than = "lower than" if tag < highest.tag else "no higher than"
            why = (
                f"{event.client}'s {event.operation} has tag {shown(tag)}, {than} "
                f"{shown(highest.tag)}, which had been seen before it began"
            )
            yield Contradiction(why, (highest.event, event))
