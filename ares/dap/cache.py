"""What a client remembers of its objects, for the optimised DAPs of CoARES (ARES II section 3, Extension 1).

The published client remembers, per object, the last (tag, value) that it read or wrote; servers then send only what is newer, and put-data is
skipped for a tag that is at a quorum already. A tag names one value for ever, so a remembered value stands in for the one on its way whatever the
configuration; that a tag is at a *quorum* is known of one configuration only, so the configuration is remembered with it.
"""

from collections import OrderedDict

from ares.model.identity import ConfigurationId, ObjectName
from ares.model.tag import Tag
from ares.model.value import Value

TAGS_MAX = 65_536
VALUE_BYTES_MAX = 64 * 1024 * 1024


class Memory:
    """Bounded: TAGS_MAX objects, ``value_bytes_max`` of values; what is oldest goes first. Forgetting costs a transfer, never correctness."""

    def __init__(self, value_bytes_max: int = VALUE_BYTES_MAX) -> None:
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
        """Whether ``tag``, the newest that a quorum names, is known to be at one."""
        return self._settled.get(object) == (configuration, tag)

    def keep(self, object: ObjectName, tag: Tag, value: Value) -> None:
        """Remember a value, if it is not older than the one that is kept and there is room for it."""
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
        """The last value kept of an object, and its tag."""
        held = self._values.get(object)
        if held is not None:
            self._values.move_to_end(object)
        return held


def _size(value: Value) -> int:
    return len(value) if isinstance(value, bytes) else 0
