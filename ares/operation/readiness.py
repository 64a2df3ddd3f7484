"""Whom to ask first: the servers that are likely to answer soonest.

A round needs a quorum, and a query asks no more servers than that unless they are slow (ares/operation/session.py): messages that nobody waits for
cost everybody time. Nothing depends on the choice but speed: servers that are not asked are servers whose request is late.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import CallId, ConfigurationId, ServerId

PROBE_TURNS = 64
REMOTE_BEHIND = 1 << 64
"""Further than any server at the client's own site."""

FAR_BEHIND = 1 << 65
"""Further than any server that is no suspect."""


class Order(Struct, frozen=True, gc=False):
    """In what order servers are asked in one turn, by their positions: the readiest first.

    ``first``: positions of those to ask at first, ``asked``, who they are; ``spared``: the others.
    """

    positions: list[int]
    first: list[int]
    asked: tuple[ServerId, ...]
    spared: tuple[ServerId, ...]


class Readiness:
    """What one client knows of its servers. ``suspects``: those that let a round wait, until they say something again. ``remote``: those at other
    sites than the client.

    Calls are numbered, so the last call that a server was sent and the last that it answered tell how much it is behind. The order stays the same
    for a *turn*: what is produced in one goes to the same servers, in as few batches as possible. ``turn``: where to begin, another for each client.
    ``sent``: to every server, the last call.
    """

    def __init__(self, turn: int = 0) -> None:
        self.suspects: set[ServerId] = set()
        self.remote: frozenset[ServerId] = frozenset()
        self.sent: dict[ServerId, CallId] = {}
        self.turn = turn
        self._heard: dict[ServerId, CallId] = {}
        self._orders: dict[tuple[ConfigurationId, int], Order] = {}

    def heard(self, server: ServerId, call: CallId) -> None:
        """It answered."""
        if self.suspects:
            self.suspects.discard(server)
        if call > self._heard.get(server, 0):
            self._heard[server] = call

    def next_turn(self) -> None:
        self.turn += 1
        self._orders.clear()

    def order(self, configuration: Configuration, preferred: int = 0) -> Order:
        """The readiest servers first; of those that are equally ready, the ones at the first ``preferred`` positions, and then in turn.

        A quorum is asked at first. Every PROBE_TURNS the least ready is asked as well: only a server that is asked can show that it is well again.
        """
        order = self._orders.get((configuration.id, preferred))
        if order is None:
            servers, needed = configuration.server_ids, configuration.quorum_size
            positions, probed = (
                self._ranked(servers, preferred),
                1 if self.turn % PROBE_TURNS == 0 else 0,
            )
            end = max(len(servers) - probed, needed)
            first = positions[:needed] + positions[end:]
            asked, spared = (
                tuple([servers[position] for position in first]),
                tuple([servers[position] for position in positions[needed:end]]),
            )
            order = self._orders[configuration.id, preferred] = Order(
                positions, first, asked, spared
            )
        return order

    @contextmanager
    def recalled(self, configuration: Configuration, order: Order) -> Iterator[None]:
        """Give this order of servers meanwhile, to who goes again through what was done before."""
        orders, self._orders = (
            self._orders,
            {(configuration.id, preferred): order for preferred in (0, configuration.k)},
        )
        try:
            yield
        finally:
            self._orders = orders

    def _ranked(self, servers: tuple[ServerId, ...], preferred: int) -> list[int]:
        """Positions by how far behind, whether preferred, whose turn. A rank is one number; its last digit, to the base n, tells the position."""
        n, turn, sent, heard, suspects, remote, ranks = (
            len(servers),
            self.turn,
            self.sent,
            self._heard,
            self.suspects,
            self.remote,
            [],
        )
        for position, server in enumerate(servers):
            behind = sent.get(server, 0) - heard.get(server, 0)
            if behind < 0:
                behind = 0
            if server in remote:
                behind += REMOTE_BEHIND
            if server in suspects:
                behind += FAR_BEHIND
            ranks.append((behind * 2 + (position >= preferred)) * n + (position - turn) % n)
        ranks.sort()
        return [(rank + turn) % n for rank in ranks]
