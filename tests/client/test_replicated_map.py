"""The example of docs/log.md: a map that every follower of a log has."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

import ares

spec = importlib.util.spec_from_file_location(
    "replicated_map", Path(__file__).parents[2] / "examples/replicated_map.py"
)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


async def test_a_map_is_the_same_everywhere(cluster):
    stores = [cluster.manager() for _ in range(3)]

    async def opened(store):
        return example.ReplicatedMap(
            store, await store.log("map", ares.Configuration.chain(["s0", "s1", "s2"]))
        )

    one, two = await opened(stores[0]), await opened(stores[1])
    await one.set("a", 1)
    assert await two.get("a") == 1
    await asyncio.gather(
        *(shared.update("count", lambda old: (old or 0) + 1) for shared in (one, two) * 10)
    )
    assert await one.get("count") == 20
    await two.snapshot()
    await one.set("b", 2)
    late = await opened(stores[2])
    assert await late.get("count") == 20
    assert await late.get("b") == 2
    assert late.content == {"a": 1, "b": 2, "count": 20}
    log = await stores[2].log("map")
    with pytest.raises(ares.Trimmed):
        await log.read(0)
    await log.close()
    with pytest.raises(ares.AresError):
        await late.get("a")
