"""Rebuilding one server's element of a version from those of other servers of the configuration: what a scrub repairs with.

Only elements of exactly that tag are taken, and what comes out is put under that tag again: a repair never makes a version look newer or older than
it is. With ABD any whole value will do; with EC any k elements are decoded and encoded again, some stripes at a time: a server has other clients.
"""

from collections.abc import Mapping, Set

from ares.dap.coding import STRIPE_BYTES, Coding, Parts, coding_for
from ares.model.configuration import Configuration
from ares.model.element import intact, sealed
from ares.model.errors import Superseded, Unavailable
from ares.model.identity import ObjectName, ServerId
from ares.model.messages import DataReply, Element, GetData
from ares.model.tag import Tag
from ares.operation.effects import Gather, Operation, Pause

ASK_S = 1.0
SUSPECT_S = 0.25
BYTES_PER_S_EXPECTED = 20e6
"""How long servers may stay silent before others are asked, besides the time that a value takes; and those that were silent the last time."""

TICK_S = 0.1
"""Patience with those that have not answered must end before patience with all of them does."""

STRIPES_AT_ONCE = 8


def rebuild_element(
    configuration: Configuration, object: ObjectName, tag: Tag, length: int, own: ServerId, suspects: Set[ServerId] = frozenset()
) -> Operation[Element | None]:
    """The element of server ``own``; None if fewer than k others have theirs, or need it no more because the successor is finalized.

    ``length``: of the whole value, in bytes. ``suspects``: servers that were silent lately, asked last. Raises :class:`Unavailable` when fewer than
    k answer, and :class:`ares.DecodeFailed`.
    """
    code = coding_for(configuration)
    slowly_s = ASK_S + length / BYTES_PER_S_EXPECTED
    others = sorted((server for server in configuration.server_ids if server != own), key=lambda server: server in suspects)
    elements: dict[int, Element] = {}
    answered = 0
    while others and len(elements) < code.k:
        lacking = code.k - len(elements)
        asked, others = tuple(others[:lacking]), others[lacking:]
        replies = yield from _ask(configuration, object, tag, asked, SUSPECT_S if suspects >= set(asked) else slowly_s)
        answered += len(replies)
        for reply in replies.values():
            if reply.successor is not None and reply.successor.finalized:
                return None
            element = reply.element
            if element is not None and 0 <= element.index < configuration.n and intact(configuration.id, object, tag, element):
                elements[element.index if configuration.dap == "ec" else 0] = element
    if len(elements) < code.k:
        if answered < code.k:
            silent = {server: "no answer" for server in configuration.server_ids if server in suspects and server != own}
            raise Unavailable(code.k, answered, silent, f"repair of {object!r} in configuration {configuration.index}")
        return None
    if configuration.dap == "abd":
        return elements[0]
    length, index = next(iter(elements.values())).length, configuration.server_ids.index(own)
    parts = yield from _encoded(code, length, {position: element.parts for position, element in elements.items()}, index)
    return sealed(configuration.id, object, tag, index, length, parts)


def _ask(
    configuration: Configuration, object: ObjectName, tag: Tag, servers: tuple[ServerId, ...], silence_s: float
) -> Operation[Mapping[ServerId, DataReply]]:
    """What these servers have of the version; silent ones are left out."""
    arguments = (configuration.id, object, True, tag)
    gather = Gather(configuration, GetData, "repair", servers, 1, lambda _: False, lambda _: silence_s, 2 * silence_s + TICK_S, arguments)
    try:
        replies: Mapping[ServerId, DataReply] = yield gather
    except (Unavailable, Superseded):
        return {}
    return replies


def _encoded(code: Coding, length: int, elements: Mapping[int, Parts], index: int) -> Operation[Parts]:
    """The data of element ``index``. Raises :class:`ares.DecodeFailed`."""
    own: list[bytes] = []
    starts = range(0, length, STRIPE_BYTES)
    for stripe, start in enumerate(starts):
        if stripe and stripe % STRIPES_AT_ONCE == 0:
            yield Pause(0.0)
        value = code.decode(min(STRIPE_BYTES, length - start), {position: parts[stripe : stripe + 1] for position, parts in elements.items()})
        own.extend(code.encode(value)[index])
    return tuple(own)
