"""Elements and their seal: a checksum over all fields that could be mixed up on the way.

The erasure code notices neither flipped bits nor a mixture of elements of different versions; the
seal does. The configuration's id covers its domain; a seal therefore covers domain, configuration,
object, tag, element index, length of the whole value, and the bytes.
"""

import struct
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from xxhash import xxh3_64, xxh3_64_intdigest

from ares.model.configuration import SERVERS_MAX
from ares.model.identity import VALUE_BYTES_MAX, ConfigurationId, ObjectName
from ares.model.numbers import Word
from ares.model.tag import Tag
from ares.model.work import LISTED_WORK

DELETED_LENGTH = -1
"""The length of a tombstone: a version of an absent object. Never written reads as deleted."""

LEFT_LENGTH = -2
"""The length of the mark of an object left behind: a version whose value is lost."""

FRAME_MAX = 2**31 - 1
"""The highest number of a frame, or of a part in a journal's batch."""

ValueLength = Annotated[int, Meta(ge=LEFT_LENGTH, le=VALUE_BYTES_MAX)]
"""Length of a whole value, in bytes; DELETED_LENGTH or LEFT_LENGTH."""

PART_BYTES_MIN = 1024
"""Least mean size of an element's parts, the last part aside.

A coding makes no part below 32 KiB except the last (ares/dap/coding.py); each part costs a server
some hundred bytes of memory besides its data.
"""

_pack = struct.Struct(">QQiq").pack

ELEMENT_PARTS_MAX = 1024
"""Parts of an element: as many as the stripes of the largest value (ares/dap/coding.py)."""


class Element(Struct, frozen=True, array_like=True, gc=False):
    """A server's part of a version: the whole value (ABD) or coded element ``index`` (EC).

    ``length``: bytes of the whole value, DELETED_LENGTH or LEFT_LENGTH. ``checksum``: the seal over
    all fields that could be mixed up (:func:`checksum`). ``parts``: the data, in pieces as
    the coding made them (a piece for each stripe of the value, see ares/dap/coding.py), never
    joined on the way. ``frame``: on the wire only, the number of the first frame with large parts;
    -1 when the parts are here.
    """

    index: Annotated[int, Meta(ge=0, le=SERVERS_MAX - 1)]
    length: ValueLength
    checksum: Word
    parts: Annotated[tuple[bytes, ...], Meta(max_length=ELEMENT_PARTS_MAX)]
    frame: Annotated[int, Meta(ge=-1, le=FRAME_MAX)] = -1

    @property
    def size(self) -> int:
        """Return the bytes of data."""
        parts = self.parts
        return len(parts[0]) if len(parts) == 1 else sum(map(len, parts))

    @property
    def bulk(self) -> int:
        """Return the work that the data make (ares/model/work.py)."""
        parts = self.parts
        return len(parts[0]) if len(parts) == 1 else LISTED_WORK * len(parts) + self.size


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


def too_large(length: int, value_bytes: int) -> str:
    """Return why a server that takes values of ``value_bytes`` refuses an element."""
    return (
        f"a value of {length} bytes, and this server's cluster file allows {value_bytes} "
        "(value_bytes under [limits]); it was not stored"
    )


def is_in_crumbs(element: Element) -> bool:
    """Return whether the element has more parts than any coding makes of its size."""
    return element.size < (len(element.parts) - 1) * PART_BYTES_MIN
