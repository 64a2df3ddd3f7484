"""A map that is the same everywhere: each change is an entry of a log, and everybody applies the entries in their order.

python examples/replicated_map.py cluster.toml KEY [VALUE]     prints what KEY has; with VALUE: sets it first
"""

import asyncio
import json
import sys

import ares


class ReplicatedMap:
    """``content``: the map as the entries below ``position`` made it. Use as ``async with ReplicatedMap(store, log)``."""

    def __init__(self, store, log):
        self.content, self.position = {}, 0
        self._store, self._log, self._snapshots = store, log, f"{log.name}/snapshot/"
        self._applied = asyncio.Event()

    async def __aenter__(self):
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_):
        self._following.cancel()

    async def _follow(self):
        while True:
            try:
                async for position, entry in self._log.follow(self.position):
                    self._apply(position + 1, {**self.content, **json.loads(entry)})
            except ares.Trimmed:  # what comes next is in a snapshot, which was written before the log was trimmed
                newest = [name async for name in self._store.list(self._snapshots)][-1]
                self._apply(int(newest.removeprefix(self._snapshots)), json.loads(await self._store.read(newest)))

    def _apply(self, position, content):
        self.position, self.content = position, content
        self._applied.set()
        self._applied = asyncio.Event()

    async def _reach(self, position):
        while self.position < position:
            applied = asyncio.create_task(self._applied.wait())
            await asyncio.wait({applied, self._following}, return_when=asyncio.FIRST_COMPLETED)
            if self._following.done():
                self._following.result()  # raises what ended it

    async def get(self, key):
        """Linearizable: it knows everything that was set before it was asked."""
        await self._reach(await self._log.tail())
        return self.content.get(key)

    async def set(self, key, value):
        await self._reach(await self._log.append(json.dumps({key: value}).encode()) + 1)

    async def update(self, key, change):
        """Set what ``change`` makes of the old value, unless somebody else changed the map meanwhile: then look again."""
        while True:
            value = change(await self.get(key))
            try:
                position = await self._log.append(json.dumps({key: value}).encode(), at=self.position)
            except ares.PositionTaken:
                continue
            await self._reach(position + 1)
            return value

    async def snapshot(self):
        """Keep the map as it is now, and give up the entries that made it."""
        position, content = self.position, self.content
        await self._store.write(f"{self._snapshots}{position:020}", json.dumps(content).encode())
        await self._log.trim(position)


async def main(cluster, key, *values):
    async with ares.connect(cluster) as store:
        log = await store.log("map", create=ares.Configuration.chain(["s0", "s1", "s2"]))
        async with ReplicatedMap(store, log) as shared:
            for value in values:
                await shared.set(key, value)
            print(await shared.get(key))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
