"""The seal of an element: a checksum over all fields that could be mixed up on the way.

The erasure code notices neither flipped bits nor a mixture of elements of different versions; the
seal does. The configuration's id covers its domain; a seal therefore covers domain, configuration,
object, tag, element index, length of the whole value, and the bytes.
"""

import struct
from collections.abc import Sequence

from xxhash import xxh3_64, xxh3_64_intdigest

from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import Element
from ares.model.tag import Tag

PART_BYTES_MIN = 1024
"""Least mean size of an element's parts, the last part aside.

A coding makes no part below 32 KiB except the last (ares/dap/coding.py); each part costs a server
some hundred bytes of memory besides its data.
"""

_pack = struct.Struct(">QQiq").pack


def seal_seed(
    configuration: ConfigurationId, object: ObjectName, tag: Tag, index: int, length: int
) -> int:
    """Return the seed of the digest of an element's data: the digest of all other fields.

    Raises struct.error for numbers that cannot be sealed.
    """
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
    """Return the seal, 64 bits (XXH3) seeded with the digest of all fields except the data.

    Raises struct.error for numbers that cannot be sealed.
    """
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
    """Return the element with its checksum."""
    return Element(index, length, checksum(configuration, object, tag, index, length, parts), parts)


def intact(configuration: ConfigurationId, object: ObjectName, tag: Tag, element: Element) -> bool:
    """Return whether the element equals the element sealed under this tag.

    Numbers which cannot be sealed never were.
    """
    try:
        return element.checksum == checksum(
            configuration, object, tag, element.index, element.length, element.parts
        )
    except struct.error:
        return False


def hollow(element: Element) -> Element:
    """Return the placeholder of a rotten element, as a record of its presence.

    The placeholder is not intact, hence never sent in an answer.
    """
    return Element(element.index, element.length, element.checksum, ())


def is_hollow(element: Element) -> bool:
    """Return whether the data of the element is missing.

    An element of a value with bytes always has data otherwise.
    """
    return element.length > 0 and not any(element.parts)


def is_in_crumbs(element: Element) -> bool:
    """Return whether the element has more parts than any coding makes of its size."""
    return element.size < (len(element.parts) - 1) * PART_BYTES_MIN
