"""The seal of an element: a checksum over everything that could be mixed up on its way to a disk and back.

The erasure code notices neither flipped bits nor elements of different versions put together; this does. The configuration's id covers
its domain, so a seal covers domain, configuration, object, tag, element index, length of the whole value, and the bytes.
"""

import struct
from collections.abc import Sequence

from xxhash import xxh3_64, xxh3_64_intdigest

from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import Element
from ares.model.tag import Tag

PART_BYTES_MIN = 1024
"""The parts of an element, but one, have at least so many bytes in the mean. A coding makes none below 32 KiB, the last one aside
(ares/dap/coding.py); each costs a server some hundred bytes of memory besides its data."""

_pack = struct.Struct(">QQiq").pack


def seal_seed(
    configuration: ConfigurationId, object: ObjectName, tag: Tag, index: int, length: int
) -> int:
    """What the digest of an element's data is seeded with: the digest of all that is not data. Raises struct.error for what cannot be sealed."""
    return xxh3_64_intdigest(
        configuration + _pack(tag.number, tag.writer, index, length) + object.encode()
    )


def checksum(
    configuration: ConfigurationId,
    object: ObjectName,
    tag: Tag,
    index: int,
    length: int,
    parts: Sequence[bytes],
) -> int:
    """64 bits (XXH3), seeded with the digest of all that is not data. Raises struct.error for what cannot be sealed."""
    seed = xxh3_64_intdigest(
        configuration + _pack(tag.number, tag.writer, index, length) + object.encode()
    )
    if len(parts) == 1:
        return xxh3_64_intdigest(parts[0], seed)
    digest = xxh3_64(seed=seed)
    for part in parts:
        digest.update(part)
    return digest.intdigest()


def sealed(
    configuration: ConfigurationId,
    object: ObjectName,
    tag: Tag,
    index: int,
    length: int,
    parts: tuple[bytes, ...],
) -> Element:
    """The element with its checksum."""
    return Element(index, length, checksum(configuration, object, tag, index, length, parts), parts)


def intact(configuration: ConfigurationId, object: ObjectName, tag: Tag, element: Element) -> bool:
    """Whether the element is what was sealed under this tag. Numbers that cannot be sealed never were."""
    try:
        return element.checksum == checksum(
            configuration, object, tag, element.index, element.length, element.parts
        )
    except struct.error:
        return False


def hollow(element: Element) -> Element:
    """What is kept of an element that rotted: that it was there. It is not intact, so it is never answered."""
    return Element(element.index, element.length, element.checksum, ())


def is_hollow(element: Element) -> bool:
    """Whether its data is missing. No other element of a value that has bytes is without any."""
    return element.length > 0 and not any(element.parts)


def is_in_crumbs(element: Element) -> bool:
    """Whether it is cut into more parts than any coding makes of so many bytes."""
    return element.size < (len(element.parts) - 1) * PART_BYTES_MIN
