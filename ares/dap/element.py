"""The seal of an element: a checksum over everything that could be mixed up on its way to a disk and back.

The erasure code notices neither flipped bits nor elements of different versions put together; this does. The configuration's id covers
its domain, so a seal covers domain, configuration, object, tag, element index, length of the whole value, and the bytes.
"""

from struct import Struct as Layout

from xxhash import xxh3_64_intdigest

from ares.identity import ConfigurationId, ObjectName
from ares.messages import Element
from ares.tag import Tag

_layout = Layout(">QQiq")


def checksum(configuration: ConfigurationId, object: ObjectName, tag: Tag, index: int, length: int, data: bytes) -> int:
    """64 bits (XXH3), seeded with the digest of all that is not data."""
    head = configuration + _layout.pack(tag.number, tag.writer, index, length) + object.encode()
    return xxh3_64_intdigest(data, xxh3_64_intdigest(head))


def sealed(configuration: ConfigurationId, object: ObjectName, tag: Tag, index: int, length: int, data: bytes) -> Element:
    """The element with its checksum."""
    return Element(index, length, checksum(configuration, object, tag, index, length, data), data)


def intact(configuration: ConfigurationId, object: ObjectName, tag: Tag, element: Element) -> bool:
    """Whether the element is what was sealed under this tag."""
    return element.checksum == checksum(configuration, object, tag, element.index, element.length, element.data)
