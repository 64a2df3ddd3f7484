"""Relays for the links between the sites of testbed `processes`, in a separate process.

    python -m experiments.testbeds.relays      # RelayRequests in, RelayReplies out, as JSON lines

The process lasts as long as its standard input.
"""

import asyncio

from msgspec import Struct

from experiments.bench.worker_process import answer, received
from experiments.relay import LinkDirection, Relay, precisely


class RelayRequest(Struct, frozen=True, omit_defaults=True):
    """A request about the way from ``site`` to ``other``.

    ``target`` opens a relay to this ``host:port`` at ``other``. ``delay_s``, ``jitter_s`` and
    ``joined`` change the way.
    """

    site: str = ""
    other: str = ""
    target: str | None = None
    delay_s: float | None = None
    jitter_s: float = 0.0
    joined: bool | None = None


class RelayReply(Struct, frozen=True, omit_defaults=True):
    """A reply.

    ``address`` is the address of the new relay. ``traffic`` has sites and delivered bytes of every
    way so far. ``error`` describes a failure.
    """

    address: str = ""
    traffic: list[tuple[str, str, int]] = []
    error: str = ""


class Links:
    """Every way between two sites that a request named, and the relays."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, str], LinkDirection] = {}
        self._relays: list[Relay] = []

    async def answer(self, request: RelayRequest) -> RelayReply:
        """Do the work of a request."""
        way = (
            self._ways.setdefault((request.site, request.other), LinkDirection())
            if request.site
            else LinkDirection()
        )
        if request.delay_s is not None:
            way.delay_s, way.jitter_s = request.delay_s, request.jitter_s
        if request.joined is not None:
            (way.joined.set if request.joined else way.joined.clear)()
        address = await self._open(request.target, way, request) if request.target else ""
        return RelayReply(
            address,
            [(site, other, way.delivered_bytes) for (site, other), way in self._ways.items()],
        )

    async def _open(self, target: str, way: LinkDirection, request: RelayRequest) -> str:
        relay = Relay(
            target, way, self._ways.setdefault((request.other, request.site), LinkDirection())
        )
        self._relays.append(relay)
        return await relay.open()

    async def close(self) -> None:
        """Close every connection."""
        for relay in self._relays:
            await relay.close()


async def _serve() -> None:
    links = Links()
    while (request := await asyncio.to_thread(received, RelayRequest)) is not None:
        try:
            answer(await links.answer(request))
        except (OSError, ValueError) as error:
            answer(RelayReply(error=str(error)))
    await links.close()


if __name__ == "__main__":
    precisely(_serve())
