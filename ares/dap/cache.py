"""A client's memory of objects, for the optimised DAPs of CoARES (ARES II section 3, Extension 1).

The published client remembers, per object, the last (tag, value) read or written; servers send only
newer values, and put-data is skipped for a tag known to be at a quorum. A tag names a single value
for ever, hence a remembered value replaces the transfer in every configuration. A tag's being at a
*quorum* is known of a single configuration only, hence the configuration is remembered with the
tag.
"""

from collections import OrderedDict

from ares.model.identity import ConfigurationId, ObjectName
from ares.model.tag import Tag
from ares.model.value import Value

TAGS_MAX = 65_536
CACHED_BYTES_MAX = 64 * 1024 * 1024


class ClientCache:
    """A bounded memory: TAGS_MAX objects and ``value_bytes_max`` of values; oldest go first.

    Forgetting costs a transfer, never correctness.
    """

    def __init__(self, value_bytes_max: int = CACHED_BYTES_MAX) -> None:
        self._value_bytes_max = value_bytes_max
        self._settled: OrderedDict[ObjectName, tuple[ConfigurationId, Tag]] = OrderedDict()
        self._values: OrderedDict[ObjectName, tuple[Tag, Value]] = OrderedDict()
        self._bytes = 0

    def settle(self, object: ObjectName, configuration: ConfigurationId, tag: Tag) -> None:
        """Remember that ``tag`` is at a quorum of ``configuration``."""
        known = self._settled.get(object)
        if known is None or known[0] != configuration or known[1] < tag:
            self._settled[object] = (configuration, tag)
            self._settled.move_to_end(object)
            if len(self._settled) > TAGS_MAX:
                self._settled.popitem(last=False)

    def at_quorum(self, object: ObjectName, configuration: ConfigurationId, tag: Tag) -> bool:
        """Return whether ``tag``, the newest tag named by a quorum, is known to be at a quorum."""
        return self._settled.get(object) == (configuration, tag)

    def keep(self, object: ObjectName, tag: Tag, value: Value) -> None:
        """Remember a value, unless a newer value is kept or the value is too large."""
        held = self._values.get(object)
        if held is not None and held[0] > tag:
            return
        size = _size(value)
        if size > self._value_bytes_max:
            return
        if held is not None:
            self._bytes -= _size(held[1])
        self._values[object] = (tag, value)
        self._values.move_to_end(object)
        self._bytes += size
        while self._bytes > self._value_bytes_max or len(self._values) > TAGS_MAX:
            _, (_, old) = self._values.popitem(last=False)
            self._bytes -= _size(old)

    def value(self, object: ObjectName) -> tuple[Tag, Value] | None:
        """Return the last value kept of an object, with its tag."""
        held = self._values.get(object)
        if held is not None:
            self._values.move_to_end(object)
        return held


def _size(value: Value) -> int:
    return len(value) if isinstance(value, bytes) else 0
