"""Whom to ask first: the servers that are likely to answer soonest.

A round needs a quorum, and a query asks no more servers than that unless they are slow (ares/client/session.py): messages that nobody waits for cost
everybody time. Nothing depends on the choice but speed: servers that are not asked are servers whose request is late.
"""

from ares.identity import CallId, ServerId

PROBE_TURNS = 64


class Readiness:
    """What one client knows of its servers. ``suspects``: those that let a round wait, until they say something again.

    Calls are numbered, so the last call that a server was sent and the last that it answered tell how much it is behind. The order stays the same
    for a *turn*: what is produced in one goes to the same servers, in as few batches as possible. ``turn``: where to begin, another for each client.
    ``preferred``: of servers that are equally ready, those at so many first positions come before the others.
    """

    def __init__(self, turn: int = 0) -> None:
        self.suspects: set[ServerId] = set()
        self._sent: dict[ServerId, int] = {}
        self._heard: dict[ServerId, int] = {}
        self._turn = turn
        self._orders: dict[tuple[tuple[ServerId, ...], int], list[int]] = {}
        self._splits: dict[tuple[tuple[ServerId, ...], int, int], tuple[list[int], list[int]]] = {}

    def sent(self, server: ServerId, call: CallId) -> None:
        self._sent[server] = call

    def heard(self, server: ServerId, call: CallId) -> None:
        """It answered."""
        self.suspects.discard(server)
        if call > self._heard.get(server, 0):
            self._heard[server] = call

    def next_turn(self) -> None:
        self._turn += 1
        self._orders.clear()
        self._splits.clear()

    def first(self, servers: tuple[ServerId, ...], needed: int, preferred: int = 0) -> tuple[list[int], list[int]]:
        """Positions in ``servers`` of those to ask at first, and of those to spare.

        Every PROBE_TURNS the least ready is asked as well: who is never asked never shows that it is well again.
        """
        split = self._splits.get((servers, needed, preferred))
        if split is None:
            order, probed = self.order(servers, preferred), 1 if self._turn % PROBE_TURNS == 0 else 0
            end = len(order) - probed
            split = self._splits[servers, needed, preferred] = (order[:needed] + order[end:], order[needed:end])
        return split

    def order(self, servers: tuple[ServerId, ...], preferred: int = 0) -> list[int]:
        """Positions in ``servers``, the readiest first; in turn among equals."""
        known = self._orders.get((servers, preferred))
        if known is None:
            known = self._orders[servers, preferred] = sorted(range(len(servers)), key=lambda position: self._rank(servers, position, preferred))
        return known

    def _rank(self, servers: tuple[ServerId, ...], position: int, preferred: int) -> tuple[bool, int, bool, int]:
        server = servers[position]
        behind = self._sent.get(server, 0) - self._heard.get(server, 0)
        return server in self.suspects, max(behind, 0), position >= preferred, (position - self._turn) % len(servers)
