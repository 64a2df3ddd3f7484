"""The core workloads A to F of YCSB (experiments/bench/patterns.py) at the users' own sites.

A scan reads objects side by side.
"""

import random
from collections import deque
from collections.abc import Iterator

from experiments.bench.patterns import YCSB_MIXES, Mix, Ycsb
from experiments.bench.workload import RECORD_BYTES
from experiments.sites.fog_scene import FogScene, all_done, puts, together
from experiments.sites.orders import Operation, Order

_LANES = 4
_APART = 8 * _LANES
"""Smallest number of operations between the start of an insertion and a read of the record.

By then the record exists.
"""


def operations(mix: Mix, site: str, records: int, count: int, seed: int) -> Iterator[Operation]:
    """Yield ``count`` operations on ``records`` objects of a site, and on inserted objects."""
    room = records + round(2 * count * mix.insert)
    pattern = Ycsb(mix, random.Random(seed), records, room)
    there, inserting = records, deque[int]()
    for number in range(count):
        while inserting and inserting[0] <= number - _APART:
            inserting.popleft()
            there += 1
        kind, chosen, length = pattern.draw(there)
        if kind == "insert":
            chosen += len(inserting)
            inserting.append(number)
        last = max(chosen + 1, min(chosen + length, there))
        names = tuple(record(site, each) for each in range(chosen, last))
        if kind == "scan":
            yield Operation("scan", names)
        elif kind == "read":
            yield Operation("get", names)
        else:
            yield Operation("modify" if kind == "modify" else "put", names, RECORD_BYTES)


def record(site: str, number: int) -> str:
    return f"{site}/user{number}"


async def measure_ycsb(scene: FogScene) -> None:
    """Run each workload at each site, all sites at once, on the records of the user's own site."""
    extent = scene.extent
    async with scene.users(scene.bed.sites) as users:
        numbers = range(extent.records)
        await together(
            users,
            lambda user: Order(
                puts([record(user.site, each) for each in numbers], RECORD_BYTES), _LANES
            ),
        )
        for name, mix in YCSB_MIXES.items():
            orders = {}
            for seed, site in enumerate(scene.bed.sites):
                chosen = operations(mix, site, extent.records, extent.operations, seed)
                orders[site] = Order(tuple(chosen), _LANES)
            left = scene.left()
            answers = await together(users, lambda user, orders=orders: orders[user.site])  # type: ignore[misc]
            done = all_done(answers)
            figures = {
                "per_s": sum(len(answer.done) / answer.seconds for answer in answers),
                "between_bytes_per_op": (scene.left() - left) / len(done),
            }
            scene.note("ycsb", figures, done, workload=name)
