"""The state of a log's chains, for `status` and `top`, merged from the reports of servers.

Only the answering servers contribute: `ares-cli log stat` has proof.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.model.log_messages import ChainReport
from ares.model.messages import ConfigurationReport


class ObservedChains(Struct, frozen=True):
    """The state of a log's chains.

    ``chain``: the last chain. ``first``: the first position with an entry; ``upcoming``: entries
    below this position are committed.

    ``sealed``: servers of the chain that refuse appends while no next chain is decided.
    ``fetched``: while older entries move, the position up to which each server of the chain has
    them; None if unknown. ``needed``: servers that must stay up until the older entries have moved.
    ``returning``: servers that restarted, and wait for the next server to give entries back.
    """

    chain: Configuration
    first: int
    upcoming: int
    sealed: tuple[ServerId, ...]
    fetched: dict[ServerId, int | None]
    needed: tuple[ServerId, ...]
    returning: tuple[ServerId, ...] = ()

    @property
    def moved(self) -> int:
        """Return the number of older entries that every server of the chain has."""
        start = self.chain.start
        return max(
            min((min(upto or 0, start) for upto in self.fetched.values()), default=start)
            - self.first,
            0,
        )

    @property
    def total(self) -> int:
        """Return the number of older entries that every server of the chain needs."""
        return max(self.chain.start - self.first, 0)

    def lines(self) -> list[str]:
        """Return the state as lines for a person."""
        ids = self.chain.server_ids
        ends = {0: " (head)", len(ids) - 1: " (tail)"} if len(ids) > 1 else {}
        order = ", ".join(f"{id}{ends.get(place, '')}" for place, id in enumerate(ids))
        held = f"from {self.first} to {self.upcoming - 1}" if self.upcoming > self.first else "none"
        lines = [
            (
                f"chain {self.chain.index}: {order}; appends from position {self.chain.start} on; "
                f"entries {held}"
            )
        ]
        if self.sealed:
            lines.append(
                f"sealed at {', '.join(self.sealed)}, and the next chain is not decided: no appends"
            )
        for id in self.returning:
            following = ids[ids.index(id) + 1]
            lines.append(
                f"{id} restarted, and waits for {following} to give back entries that only "
                f"{following} may have, and for room if its disk is full: no appends until then, "
                "or until a chain without one of them"
            )
        if not self.chain.backend:
            lines.append(
                "its rule is the rule of earlier releases: `ares-cli reconfig`, to the same "
                "servers if need be, makes appends faster"
            )
        if any(upto is None or upto < self.chain.start for upto in self.fetched.values()):
            lines.append(
                f"entries below {self.chain.start} move to the chain: "
                f"{', '.join(f'{id} {self._has(id)}' for id in self.fetched)}"
            )
        if self.fetched and self.needed:
            lines.append(f"must stay up until that is over and told: {', '.join(self.needed)}")
        return lines

    def _has(self, id: ServerId) -> str:
        upto = self.fetched[id]
        if upto is None:
            return "does not say"
        return (
            "has all"
            if upto >= self.chain.start
            else f"has {max(upto - self.first, 0)} of {self.total}"
        )

    def as_data(self) -> dict[str, Any]:
        return {
            "chain": list(self.chain.server_ids),
            "index": self.chain.index,
            "start": self.chain.start,
            "first": self.first,
            "next": self.upcoming,
            "sealed": list(self.sealed),
            "returning": list(self.returning),
            "rule": self.chain.backend or "earlier",
            "fetched": self.fetched,
            "must_stay_up": list(self.needed),
        }


def chains_seen(
    active: Sequence[Configuration], reports: Mapping[ServerId, Iterable[ConfigurationReport]]
) -> ObservedChains | None:
    """Return the state of the log with the chains ``active``, the last finalized chain first.

    Returns None if the last configuration is no chain. ``reports``: the configurations that each
    server holds.
    """
    last = active[-1]
    if last.dap != "chain":
        return None
    parts: dict[ServerId, ChainReport] = {}
    trimmed = 0
    sealed = []
    for id, hosted in reports.items():
        for each in hosted:
            if each.chain is not None and each.configuration.domain == last.domain:
                trimmed = max(trimmed, each.chain.trimmed)
                if each.configuration.id == last.id:
                    parts[id] = each.chain
                    sealed += [id] if each.chain.sealed and each.successor is None else []
    fetched = (
        {id: parts[id].fetched if id in parts else None for id in last.server_ids}
        if len(active) > 1
        else {}
    )
    needed = dict.fromkeys(
        id for chain in active[:-1] for id in chain.server_ids if id not in last.server_ids
    )
    upcoming = max([last.start, *(part.committed for part in parts.values())])
    returning = tuple(id for id in last.server_ids[:-1] if id in parts and parts[id].returning)
    return ObservedChains(last, trimmed, upcoming, tuple(sealed), fetched, tuple(needed), returning)
