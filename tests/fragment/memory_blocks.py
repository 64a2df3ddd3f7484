"""The blocks of a client of a :class:`World`: coverable objects in a dictionary.

Every operation takes a few steps.
"""

from typing import TYPE_CHECKING

from ares.dap.primitives import DataResult
from ares.engine.effects import Operation, Pause
from ares.model.errors import Unavailable
from ares.model.identity import ClientId, ConfigurationId, DomainName, ObjectName
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD, Answered, Value
from ares.registers.coverable import CoverableResult

if TYPE_CHECKING:
    from .memory_world import BlockClient

TICK_S = 0.01
PAGE = 20


class MemoryBlocks:
    """The :class:`ares.fragment.shared_memory.Blocks` of a client."""

    domain = DomainName("memory")

    def __init__(self, client: "BlockClient") -> None:
        self.client = client
        self.world = client.world
        self._spent: dict[ObjectName, int] = {}

    def read(self, name: ObjectName, held: Tag | None = None) -> Operation[DataResult]:
        yield from self._step()
        tag, value = self.world.latest(name)
        yield from self._step()
        return DataResult(
            tag,
            self._move(value) if tag != held else WITHHELD,
            0,
            tag,
            True,
            None,
            ConfigurationId(bytes(16)),
        )

    def create(self, name: ObjectName, value: bytes) -> Operation[Tag]:
        tag = yield from self._put(name, value, TAG_ZERO)
        return tag

    def write(
        self,
        name: ObjectName,
        value: Value,
        version: Tag | None,
        *,
        number: int = 0,
        beside: ObjectName | None = None,
    ) -> Operation[CoverableResult]:
        yield from self._step()
        above = (
            max(self.world.latest(beside)[0].number, self.world.latest(name)[0].number) + 1
            if beside is not None
            else number - 1
        )
        tag, there = self.world.latest(name)
        late = number and max(tag.number, self._spent.get(name, 0)) >= number
        if late or self.stale(tag, there, version):
            yield from self._step()
            return CoverableResult(False, tag, self._move(there))
        new = yield from self._put(name, value, max(tag, Tag(above, ClientId(0))))
        return CoverableResult(True, new, value, tag)

    def mention(self, name: ObjectName) -> Operation[None]:
        yield from self._step()
        self.world.land(name, Tag(0, self.client.id), TOMBSTONE)
        yield from self._step()

    def advance(self, name: ObjectName, floor: int, by: int) -> Operation[Tag]:
        yield from self._step()
        latest = self.world.latest(name)[0].number
        tag = yield from self._put(name, TOMBSTONE, Tag(max(latest, floor) + by, ClientId(0)))
        return tag

    def delete(self, name: ObjectName) -> Operation[None]:
        yield from self._step()
        tag, value = self.world.latest(name)
        if value is not TOMBSTONE:
            yield from self._put(name, TOMBSTONE, tag)

    def names(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        yield from self._step()
        return _page(self.world.names(prefix), after)

    def mentioned(self, prefix: str, after: str) -> Operation[tuple[list[ObjectName], str | None]]:
        yield from self._step()
        return _page(sorted(name for name in self.world.objects if name.startswith(prefix)), after)

    def stale(self, tag: Tag, value: Value, version: Tag | None) -> bool:
        """Return whether a write over ``version`` must fail, given the present version."""
        return tag != version and (version is not None or value is not TOMBSTONE)

    def _put(self, name: ObjectName, value: Value, over: Tag) -> Operation[Tag]:
        self._move(value)
        world = self.world
        tag = Tag(max(over.number, self._spent.get(name, 0)) + 1, self.client.id)
        self._spent[name] = tag.number
        if not world.weak:
            world.land(name, tag, value)
        else:
            ticks = world.ticks()
            if not self._fails_at_next_step() or world.rng.random() < 0.5:
                world.post(ticks, lambda: world.land(name, tag, value))
            yield Pause(ticks * TICK_S)
        yield from self._step(may_have_taken_effect=True)
        return tag

    def _fails_at_next_step(self) -> bool:
        return self.client.steps in (self.client.die_at, self.client.fail_at)

    def _step(self, may_have_taken_effect: bool = False) -> Operation[None]:
        if self.client.step():
            error = Unavailable(2, 1, {}, "a test")
            error.may_have_taken_effect = may_have_taken_effect
            raise error
        yield Pause(self.world.ticks() * TICK_S)

    def _move(self, value: Answered) -> Answered:
        self.world.moved_bytes += len(value) if isinstance(value, bytes) else 0
        return value


def _page(names: list[ObjectName], after: str) -> tuple[list[ObjectName], str | None]:
    rest = [name for name in names if name > after]
    return rest[:PAGE], rest[PAGE - 1] if len(rest) > PAGE else None
