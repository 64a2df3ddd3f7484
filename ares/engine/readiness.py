"""The order of servers: a client first asks the servers likely to answer soonest.

A round needs a quorum, and a query asks no more servers unless they are slow
(ares/engine/session.py): unneeded messages cost time for every client. Only speed depends on the
choice: an unasked server equals a server with a late request.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import CallId, ConfigurationId, ServerId

PROBE_TURNS = 64
REMOTE_BEHIND = 1 << 64
"""Distance of a server at another site, beyond any server at the client's own site."""

FAR_BEHIND = 1 << 65
"""Distance of a suspect, beyond any other server."""


class ServerOrder(Struct, frozen=True, gc=False):
    """The order of servers in a turn, by their positions: the readiest first.

    ``first``: positions of the servers asked at first, ``asked``: their ids; ``spared``: the other
    servers.
    """

    positions: list[int]
    first: list[int]
    asked: tuple[ServerId, ...]
    spared: tuple[ServerId, ...]


class Readiness:
    """A client's knowledge of the readiness of its servers.

    ``suspects``: servers that delayed a round, until their next message. ``remote``: servers at
    other sites than the client. Calls are numbered: a server's last call sent and last call
    answered tell how far the server is behind. The order stays the same for a *turn*: the messages
    of a turn go to the same servers, in as few batches as possible. ``turn``: the beginning of the
    order, different for each client. ``sent``: the last call sent to every server.
    """

    def __init__(self, turn: int = 0) -> None:
        self.suspects: set[ServerId] = set()
        self.remote: frozenset[ServerId] = frozenset()
        self.sent: dict[ServerId, CallId] = {}
        self.turn = turn
        self._heard: dict[ServerId, CallId] = {}
        self._orders: dict[tuple[ConfigurationId, int], ServerOrder] = {}

    def heard(self, server: ServerId, call: CallId) -> None:
        """Record a server's answer to a call."""
        if self.suspects:
            self.suspects.discard(server)
        if call > self._heard.get(server, 0):
            self._heard[server] = call

    def next_turn(self) -> None:
        self.turn += 1
        self._orders.clear()

    def order(self, configuration: Configuration, preferred: int = 0) -> ServerOrder:
        """Return the readiest servers first.

        Among equally ready servers, the first ``preferred`` positions come first, and the rest in
        turn. A quorum is asked at first. Every PROBE_TURNS the least ready server is asked as well:
        a recovery shows only in an answer.
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
            order = self._orders[configuration.id, preferred] = ServerOrder(
                positions, first, asked, spared
            )
        return order

    @contextmanager
    def recalled(self, recalled: Iterable[tuple[Configuration, ServerOrder]]) -> Iterator[None]:
        """Return these orders from :meth:`order` while an operation is replayed."""
        orders, self._orders = (
            self._orders,
            {
                (configuration.id, preferred): order
                for configuration, order in recalled
                for preferred in (0, configuration.k)
            },
        )
        try:
            yield
        finally:
            self._orders = orders

    def _ranked(self, servers: tuple[ServerId, ...], preferred: int) -> list[int]:
        """Return positions ordered by distance behind, preference, and turn.

        A rank is a single number; its last digit, to the base n, gives the position.
        """
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
