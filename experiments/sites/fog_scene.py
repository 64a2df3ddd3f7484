"""The context of every part of the study: the network, a store, the extent, and the results."""

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from experiments.histogram import counted, latency_of
from experiments.sites.fog_network import FogNetwork
from experiments.sites.fog_plan import FogExtent
from experiments.sites.orders import Answer, FinishedOperation, Operation, Order
from experiments.sites.outcome import Measurement
from experiments.sites.site_store import Deployment
from experiments.sites.site_users import USERS_CONNECT_S, User, user

_WARM_BYTES = 1000


class FogScene:
    """A store at the sites of a bed."""

    def __init__(
        self,
        bed: FogNetwork,
        store: str,
        deployment: Deployment,
        extent: FogExtent,
        trial: int,
        note: Callable[[Measurement], None],
    ) -> None:
        self.bed, self.store, self.extent = bed, store, extent
        self._deployment, self._trial, self._note = deployment, trial, note
        self.idle_per_s = 0.0

    def note(
        self,
        test: str,
        figures: dict[str, float],
        done: Iterable[FinishedOperation] = (),
        **work: int | str,
    ) -> None:
        """Note the figures of a test; ``done`` has all operations, ``work`` the parameters."""
        ended = list(done)
        figures |= {
            "failed": float(sum(bool(each.failed) for each in ended)),
            "wrong": float(sum(each.failed.startswith("WRONG") for each in ended)),
        }
        succeeded = [each for each in ended if not each.failed]
        read, write = (
            latency_of(counted(each.took_s for each in succeeded if each.kind in kinds))
            for kinds in (("get", "scan"), ("put", "modify"))
        )
        why = next((each.failed for each in ended if each.failed), "")
        about = (self.store, len(self.bed.sites), self._trial, test, work)
        self._note(Measurement(*about, figures, read, write, why))

    def user(
        self, site: str, connect_s: float = USERS_CONNECT_S
    ) -> AbstractAsyncContextManager[User]:
        """Return a connected client without any operations so far. Raises OperationFailed."""
        return user(self.bed, self.store, self._deployment, site, connect_s)

    @asynccontextmanager
    async def users(self, sites: Sequence[str]) -> AsyncIterator[list[User]]:
        """Yield a user at each of these sites, after a first use of the user's own site."""
        async with AsyncExitStack() as closing:
            entering = (closing.enter_async_context(self.user(site)) for site in sites)
            made = list(await asyncio.gather(*entering))
            await together(made, lambda user: Order(pair(f"{user.site}/warm-up", _WARM_BYTES)))
            yield made

    def left(self) -> int:
        """Return the bytes that left all sites so far."""
        return sum(self.bed.left().values())

    async def watch_idle(self) -> None:
        """Measure the bytes that all sites send in an idle network."""
        before = self.left()
        await asyncio.sleep(self.extent.idle_s)
        self.idle_per_s = (self.left() - before) / self.extent.idle_s

    def beyond_idle(self, sent: int, seconds: float) -> float:
        """Return the part of these sent bytes that an idle network would not have sent."""
        return max(0.0, sent - self.idle_per_s * seconds)


async def together(users: Sequence[User], order: Callable[[User], Order]) -> list[Answer]:
    """Run an order of each user at the same time, and return the answers."""
    return list(await asyncio.gather(*(user.do(order(user)) for user in users)))


def pair(name: str, size: int) -> tuple[Operation, Operation]:
    """Return operations that write the object, and read it."""
    return Operation("put", (name,), size), Operation("get", (name,))


def puts(names: Sequence[str], size: int) -> tuple[Operation, ...]:
    return tuple(Operation("put", (name,), size) for name in names)


def gets(names: Sequence[str]) -> tuple[Operation, ...]:
    return tuple(Operation("get", (name,)) for name in names)


def all_done(answers: Iterable[Answer]) -> list[FinishedOperation]:
    return [each for answer in answers for each in answer.done]


def mean_s(answers: Iterable[Answer]) -> float:
    return statistics.mean(answer.seconds for answer in answers)
