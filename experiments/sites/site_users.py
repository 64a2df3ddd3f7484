"""Users at sites: the runner's side of the clients' processes.

The processes carry out orders (worker.py).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from ares.platform.interpreter import python
from experiments import ENVIRONMENT
from experiments.bench.worker_process import WORKER_IS_READY
from experiments.sites.fog_network import FogNetwork
from experiments.sites.orders import Answer, Order, WorkerOpening
from experiments.sites.site_store import Deployment, OperationFailed

USERS_CONNECT_S = 60.0
_LINE_MAX = 1 << 27
_USERS_STOP_S = 10.0
_GRACE_S = 30.0


class User:
    """A client at ``site``."""

    def __init__(self, site: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.site = site
        self._log = log
        self._process = process

    async def do(self, order: Order) -> Answer:
        """Send an order, and return the answer.

        Raises OperationFailed if the process ended, or is far too late.
        """
        limit_s = (
            order.for_s
            + order.timeout_s
            * (1 + len(order.operations) / order.parallel if not order.for_s else 1)
            + _GRACE_S
        )
        line = await self._line(limit_s, msgspec.json.encode(order) + b"\n")
        return msgspec.json.decode(line, type=Answer)

    async def _line(self, limit_s: float, given: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(given)
        try:
            async with asyncio.timeout(limit_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise OperationFailed(
                f"the client at {self.site} said nothing for {limit_s:g} s"
            ) from None
        if not line:
            raise OperationFailed(
                f"the client at {self.site} ended: "
                f"{self._log.read_text(errors='replace').strip()[-500:]}"
            )
        return line

    async def connected(self, opening: WorkerOpening, limit_s: float) -> None:
        """Wait until the client is connected. Raises OperationFailed."""
        if (
            await self._line(limit_s, msgspec.json.encode(opening) + b"\n")
            != WORKER_IS_READY + b"\n"
        ):
            raise OperationFailed(f"the client at {self.site} does not say that it is ready")

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _USERS_STOP_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def user(
    bed: FogNetwork,
    store: str,
    deployment: Deployment,
    site: str,
    connect_s: float = USERS_CONNECT_S,
) -> AsyncIterator[User]:
    """Yield a connected client. Raises OperationFailed."""
    pipe = asyncio.subprocess.PIPE
    command = [*bed.among_users(site), *python("-m", "experiments.sites.user_worker")]
    log = bed.directory / f"users-{site}.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=output,
            env=ENVIRONMENT,
            start_new_session=True,
            limit=_LINE_MAX,
        )
    made = User(site, process, log)
    try:
        await made.connected(WorkerOpening(store, site, deployment.parameters(site)), connect_s)
        yield made
    except BaseException:
        process.kill()
        raise
    finally:
        await made.close()


def now_s() -> float:
    """Return the time by the clock of Done.began_s, the machine's clock for all processes."""
    return time.perf_counter()
