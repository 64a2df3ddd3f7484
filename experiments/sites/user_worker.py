"""The process of a client, in the network of a site's users.

    python -m experiments.sites.user_worker      # started by site_users.py

The process reads a WorkerOpening, connects, and carries out Orders sequentially until its input
ends.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import cycle

from ares.platform.loop import run
from experiments.bench.worker_process import WORKER_IS_READY, answer, received, send_line
from experiments.sites.orders import (
    Answer,
    FinishedOperation,
    Operation,
    Order,
    WorkerOpening,
    is_whole,
    value_of,
)
from experiments.sites.site_store import OperationFailed, SiteClient
from experiments.sites.store_table import SITE_STORES, module_of

_WHY_MAX = 300


class UserWorker:
    """A client, and the read names of objects."""

    def __init__(self, client: SiteClient) -> None:
        self._client = client
        self._known: dict[str, str] = {}

    async def obey(self, order: Order) -> Answer:
        """Carry out the order.

        If each operation is done once, values are made before the clock runs.
        """
        self._known |= order.known
        once = [] if order.for_s else [(each, _value(each)) for each in order.operations]
        left = _until(order) if order.for_s else iter(once)
        begin_s = time.perf_counter()
        done: list[FinishedOperation] = []
        await asyncio.gather(*(self._lane(left, order, done) for _ in range(order.parallel)))
        seconds = time.perf_counter() - begin_s
        written = {name for each in order.operations if each.size for name in each.names}
        known = {name: known for name, known in self._known.items() if name in written}
        return Answer(seconds, done, known)

    async def _lane(
        self, left: Iterator[tuple[Operation, bytes]], order: Order, done: list[FinishedOperation]
    ) -> None:
        for operation, value in left:
            began_s, failed = time.perf_counter(), ""
            try:
                async with asyncio.timeout(order.timeout_s):
                    got = await self._do(operation, value)
            except TimeoutError:
                failed, got = f"no answer in {order.timeout_s:g} s", []
            except OperationFailed as error:
                failed, got = str(error)[:_WHY_MAX] or "failed", []
            took_s = time.perf_counter() - began_s
            if not all(map(is_whole, got)):
                failed = "WRONG: this value was not written"
            done.append(FinishedOperation(operation.kind, began_s, took_s, failed))
            if order.pace_s:
                await asyncio.sleep(order.pace_s)

    async def _do(self, operation: Operation, value: bytes) -> list[bytes]:
        """Do the operation, and return the values read."""
        name, got = operation.names[0], list[bytes]()
        if operation.kind != "put":
            names = [self._known.get(each, each) for each in operation.names]
            got += await asyncio.gather(*map(self._client.get, names))
        if operation.kind in ("put", "modify"):
            self._known[name] = await self._client.put(name, value)
        return got


def _until(order: Order) -> Iterator[tuple[Operation, bytes]]:
    end_s = time.perf_counter() + order.for_s
    for each in cycle(order.operations):
        if time.perf_counter() > end_s:
            return
        yield each, _value(each)


def _value(operation: Operation) -> bytes:
    return value_of(operation.size) if operation.size else b""


async def _serve() -> None:
    opening = await asyncio.to_thread(received, WorkerOpening)
    assert opening is not None
    client = await module_of(SITE_STORES[opening.store]).connect(opening.parameters, opening.site)
    worker = UserWorker(client)
    send_line(WORKER_IS_READY)
    while (order := await asyncio.to_thread(received, Order)) is not None:
        answer(await worker.obey(order))
    await client.close()


if __name__ == "__main__":
    run(_serve())
