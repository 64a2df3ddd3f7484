"""A server's element of a version, made from elements of other servers.

Elements of the server's own configuration repair a rotten element; elements of an earlier
configuration move the version from server to server (ares/server/element_puller.py).

Only elements of exactly that tag are taken, and the result is stored under that tag again: neither
use makes a version look newer or older. Where both configurations cut values into the same
elements, a single element suffices, from the server at the same position; likewise any whole value,
where elements are whole values. Otherwise any k elements are decoded and encoded again, some
stripes at a time: a server has other clients.
"""

from collections.abc import Mapping, Sequence, Set

from ares.dap.coding import STRIPE_BYTES, Parts, coding_for
from ares.engine.effects import Gather, Operation, Pause
from ares.model.configuration import Configuration
from ares.model.element import intact, sealed
from ares.model.errors import NotAuthorized, Superseded, Unavailable
from ares.model.identity import ObjectName, ServerId
from ares.model.messages import DataReply, Element, GetData, PullElement
from ares.model.tag import Tag

REPAIR_ASK_S = 1.0
SUSPECT_S = 0.25
REPAIR_RESEND_S = 1.0
REPAIR_BYTES_PER_S_EXPECTED = 20e6
"""Expected transfer speed of a value.

Other servers are asked after REPAIR_ASK_S and the time of the value's transfer, or after SUSPECT_S
where all servers asked were silent the last time.
"""

REPAIR_LEAD_S = 0.1
"""Lead of the patience with silent servers over the end of the whole round."""

STRIPES_AT_ONCE = 8


def rebuild_element(
    configuration: Configuration,
    object: ObjectName,
    tag: Tag,
    length: int,
    own: ServerId,
    suspects: Set[ServerId] = frozenset(),
) -> Operation[Element | None]:
    """Return the element of server ``own``.

    None if fewer than k other servers have their elements, or if the element is not needed any more
    because the successor is finalized. ``length``: bytes of the whole value. ``suspects``: servers
    that were silent lately, asked last. Raises :class:`Unavailable` when fewer than k answer, and
    :class:`ares.DecodeFailed`.
    """
    others = [server for server in configuration.server_ids if server != own]
    elements = yield from _collected(configuration, object, tag, length, others, suspects)
    return (
        (yield from _made(configuration, configuration, object, tag, elements, own))
        if elements
        else None
    )


def bring_element(
    request: PullElement,
    target: Configuration,
    own: ServerId,
    suspects: Set[ServerId] = frozenset(),
) -> Operation[Element | None]:
    """Return the element of server ``own`` of ``target``, for the version of the request.

    None if fewer than k servers of the source have their elements. Otherwise as
    :func:`rebuild_element`. The servers of the target begin with different servers of the source.
    """
    source, object, tag, length = request.source, request.object, request.tag, request.length
    position = target.server_ids.index(own)
    if source.dap == target.dap == "ec" and (source.n, source.k, source.code) == (
        target.n,
        target.k,
        target.code,
    ):
        replies = yield from _ask(
            source, object, tag, source.server_ids[position : position + 1], _slowly_s(length)
        )
        for reply in replies.values():
            element = _sound(source, object, tag, length, reply)
            if element is not None and element.index == position:
                return sealed(target.id, object, tag, position, element.length, element.parts)
    start = position % source.n
    elements = yield from _collected(
        source,
        object,
        tag,
        length,
        [*source.server_ids[start:], *source.server_ids[:start]],
        suspects,
    )
    return (yield from _made(source, target, object, tag, elements, own)) if elements else None


def _slowly_s(length: int) -> float:
    return REPAIR_ASK_S + length / REPAIR_BYTES_PER_S_EXPECTED


def _sound(
    configuration: Configuration, object: ObjectName, tag: Tag, length: int, reply: DataReply
) -> Element | None:
    """Return a reply's element, if it belongs to this version and to a value of ``length``."""
    element = reply.element
    if (
        element is None
        or element.length != length
        or length > element.size * configuration.k
        or not 0 <= element.index < configuration.n
    ):
        return None
    return element if intact(configuration.id, object, tag, element) else None


def _collected(
    configuration: Configuration,
    object: ObjectName,
    tag: Tag,
    length: int,
    servers: Sequence[ServerId],
    suspects: Set[ServerId],
) -> Operation[Mapping[int, Element]]:
    """Return k elements of the version, by index, from as few of these servers as possible.

    The result is empty if fewer servers have elements, or the successor is finalized. Raises
    :class:`Unavailable` when fewer than k answer.
    """
    k = configuration.k
    others = sorted(servers, key=lambda server: server in suspects)
    elements: dict[int, Element] = {}
    answered = 0
    while others and len(elements) < k:
        lacking = k - len(elements)
        asked, others = tuple(others[:lacking]), others[lacking:]
        replies = yield from _ask(
            configuration,
            object,
            tag,
            asked,
            SUSPECT_S if suspects >= set(asked) else _slowly_s(length),
        )
        answered += len(replies)
        for reply in replies.values():
            if reply.successor is not None and reply.successor.finalized:
                return {}
            element = _sound(configuration, object, tag, length, reply)
            if element is not None:
                elements[element.index if configuration.dap == "ec" else 0] = element
    if answered < k:
        silent = {server: "no answer" for server in servers if server in suspects}
        raise Unavailable(
            k, answered, silent, f"repair of {object!r} in configuration {configuration.index}"
        )
    return elements if len(elements) >= k else {}


def _made(
    source: Configuration,
    target: Configuration,
    object: ObjectName,
    tag: Tag,
    elements: Mapping[int, Element],
    own: ServerId,
) -> Operation[Element]:
    """Return the element of server ``own`` of ``target``, sealed.

    Raises :class:`ares.DecodeFailed`.
    """
    length, index = (
        next(iter(elements.values())).length,
        target.server_ids.index(own) if target.dap == "ec" else 0,
    )
    if length < 0 or source.dap == target.dap == "abd":
        parts = elements[min(elements)].parts if length >= 0 else ()
    else:
        parts = yield from _encoded(
            source,
            target,
            length,
            {position: element.parts for position, element in elements.items()},
            index,
        )
    return sealed(target.id, object, tag, index, length, parts)


def _ask(
    configuration: Configuration,
    object: ObjectName,
    tag: Tag,
    servers: tuple[ServerId, ...],
    silence_s: float,
) -> Operation[Mapping[ServerId, DataReply]]:
    """Return these servers' answers about the version; silent servers are left out."""
    arguments, give_up_s = (configuration.id, object, True, tag), 2 * silence_s + REPAIR_LEAD_S
    gather = Gather(
        configuration,
        GetData,
        "repair",
        servers,
        1,
        lambda *_: False,
        lambda *_: silence_s,
        give_up_s,
        arguments,
        resend_s=max(silence_s, REPAIR_RESEND_S),
    )
    try:
        replies: Mapping[ServerId, DataReply] = yield gather
    except (Unavailable, Superseded, NotAuthorized):
        return {}
    return replies


def _encoded(
    source: Configuration,
    target: Configuration,
    length: int,
    elements: Mapping[int, Parts],
    index: int,
) -> Operation[Parts]:
    """Return the data of element ``index`` of ``target``. Raises :class:`ares.DecodeFailed`."""
    given, wanted = coding_for(source), coding_for(target)
    copies = elements[0] if source.dap == "abd" else ()
    whole = memoryview(copies[0] if len(copies) == 1 else b"".join(copies))
    own: list[bytes] = []
    for stripe, start in enumerate(range(0, length, STRIPE_BYTES)):
        if stripe and stripe % STRIPES_AT_ONCE == 0:
            yield Pause(0.0)
        if source.dap == "abd":
            value = bytes(whole[start : start + STRIPE_BYTES])
        else:
            value = given.decode(
                min(STRIPE_BYTES, length - start),
                {position: parts[stripe : stripe + 1] for position, parts in elements.items()},
            )
        own.extend(wanted.encode(value)[index])
    return (b"".join(own),) if target.dap == "abd" else tuple(own)
