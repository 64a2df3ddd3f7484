"""Users at sites: the runner's side of the clients' processes.

The processes carry out orders (user_worker.py).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from experiments.bench.worker_process import GeneratorFailed, WorkerProcess
from experiments.blocking_calls import in_thread
from experiments.sites.fog_network import FogNetwork
from experiments.sites.orders import Answer, Order, WorkerOpening
from experiments.sites.site_store import Deployment, OperationFailed

USERS_CONNECT_S = 60.0
_USERS_STOP_S = 10.0
_GRACE_S = 30.0

Reply = TypeVar("Reply")


class User:
    """A client at ``site``."""

    def __init__(self, site: str, process: WorkerProcess, log: Path) -> None:
        self.site = site
        self._log = log
        self._process = process

    async def do(self, order: Order) -> Answer:
        """Send an order, and return the answer.

        Raises OperationFailed if the process ended, or is far too late.
        """
        turns = 1.0 if order.for_s else 1 + len(order.operations) / order.parallel
        limit_s = order.for_s + order.timeout_s * turns + _GRACE_S
        return await self._told(order, limit_s, lambda: self._process.receive(Answer))

    async def connected(self, opening: WorkerOpening, limit_s: float) -> None:
        """Wait until the client is connected. Raises OperationFailed."""
        await self._told(opening, limit_s, self._process.await_ready)

    async def _told(self, message: Struct, limit_s: float, replied: Callable[[], Reply]) -> Reply:
        def tell() -> Reply:
            self._process.send(message)
            return replied()

        try:
            async with asyncio.timeout(limit_s):
                return await in_thread(tell)
        except TimeoutError:
            raise OperationFailed(
                f"the client at {self.site} said nothing for {limit_s:g} s"
            ) from None
        except (GeneratorFailed, OSError):
            said = self._log.read_text(errors="replace").strip()[-500:]
            raise OperationFailed(f"the client at {self.site} ended: {said}") from None


@contextlib.asynccontextmanager
async def user(
    bed: FogNetwork,
    store: str,
    deployment: Deployment,
    site: str,
    connect_s: float = USERS_CONNECT_S,
) -> AsyncIterator[User]:
    """Yield a connected client. Raises OperationFailed."""
    log = bed.directory / f"users-{site}.log"
    module, inside = "experiments.sites.user_worker", bed.among_users(site)
    with log.open("ab") as output:
        process = WorkerProcess(module, inside, stderr=output, start_new_session=True)
    made = User(site, process, log)
    try:
        await made.connected(WorkerOpening(store, site, deployment.parameters(site)), connect_s)
        yield made
    except BaseException:
        process.end()
        raise
    finally:
        await in_thread(process.join, _USERS_STOP_S)
