"""A replicated map: each change is an entry of a log, and all clients apply the entries in order.

    python examples/replicated_map.py cluster.toml KEY [VALUE]

prints the value of KEY; with VALUE, sets KEY first.
"""

import asyncio
import contextlib
import json
import sys

import ares


class ReplicatedMap:
    """A map: ``content`` is the result of the entries below ``position``."""

    def __init__(self, store, log):
        self.content, self.position = {}, 0
        self._store, self._log, self._snapshots = store, log, f"{log.name}/snapshot/"
        self._turn = asyncio.Lock()

    async def _reach(self, position):
        """Apply the entries below ``position``, trimmed entries from a snapshot."""
        async with self._turn:
            while self.position < position:
                try:
                    async with contextlib.aclosing(self._log.follow(self.position)) as entries:
                        async for at, entry in entries:
                            self.content |= json.loads(entry)
                            self.position = at + 1
                            if self.position >= position:
                                break
                except ares.Trimmed:
                    newest = [name async for name in self._store.list(self._snapshots)][-1]
                    self.content = json.loads(await self._store.read(newest))
                    self.position = int(newest.removeprefix(self._snapshots))

    async def get(self, key):
        """Return the value of ``key``; linearizable: all earlier changes count."""
        await self._reach(await self._log.tail())
        return self.content.get(key)

    async def set(self, key, value):
        await self._log.append(json.dumps({key: value}).encode())

    async def update(self, key, change):
        """Set ``change`` of the old value; repeat if another client changed the map meanwhile."""
        while True:
            value = change(await self.get(key))
            with contextlib.suppress(ares.PositionTaken):
                await self._log.append(json.dumps({key: value}).encode(), at=self.position)
                return value

    async def snapshot(self):
        """Store the present map as a snapshot, and trim the entries below it."""
        position, content = self.position, json.dumps(self.content)
        await self._store.write(f"{self._snapshots}{position:020}", content.encode())
        await self._log.trim(position)


async def main(cluster, key, *values):
    async with ares.connect(cluster) as store:
        log = await store.log("map", create=ares.Configuration.chain(["s0", "s1", "s2"]))
        shared = ReplicatedMap(store, log)
        for value in values:
            await shared.set(key, value)
        print(await shared.get(key))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
