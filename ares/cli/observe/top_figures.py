"""The figures of `top` as one tree of plain data, computed from the answers of servers.

`ares-cli top --once --json` prints the tree; docs/operation.md has its shape. Servers count from
their start; rates and percentiles cover the time between the first and the last answer of the last
seconds. An operation asks several servers: the number of operations is the number of requests to
servers, divided by the size of a quorum. This module is pure.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

from msgspec import Struct, structs

from ares.cli.observe.domain_survey import (
    DomainState,
    KnownConfigurations,
    is_of_file,
    outlook_of_files,
    standing_of,
)
from ares.cli.observe.observed_chains import chains_seen
from ares.cluster.sites import site_of
from ares.model.configuration import Configuration
from ares.model.errors import NO_ANSWER
from ares.model.identity import ConfigurationId, ServerId
from ares.model.messages import ConfigurationReport, Description, Durations, ServerWork

SLOW_SERVER_S = 0.02
SLOW_SERVER_TIMES = 4
"""A server is slow after `SLOW_SERVER_S`, if it takes `SLOW_SERVER_TIMES` as long as its peers."""


LATENCIES = {"read": "reading", "write": "writing", "queue": "queueing", "commit": "committing"}
"""Histograms of a server's work, by the prefix of their percentiles' names."""

UPTIME_S_MIN = 0.001
"""The smallest uptime between two answers that gives a rate."""

UPTIME_S_MAX, AMOUNT_MAX = 1e10, 2**60
"""Upper limits of an uptime and of an amount in a credible answer."""


class DatedAnswer(Struct, frozen=True):
    """An answer of a server.

    ``at_s``: the arrival; ``took_s``: seconds until the server answered.
    """

    at_s: float
    took_s: float
    description: Description


class ObservedServer(Struct):
    """The last answers of one server, and the last report of the configurations held.

    ``silent_s``: seconds without an answer; 0 while the server answers.
    """

    address: str
    answers: deque[DatedAnswer]
    hosted: tuple[ConfigurationReport, ...] = ()
    silent_s: float = 0.0
    why: str = ""

    def take(self, answer: DatedAnswer, since_s: float) -> None:
        """Keep ``answer``, and drop earlier answers older than ``since_s`` or of an earlier run."""
        if self.answers and not _follows(answer.description, self.answers[-1].description):
            self.answers.clear()
        while self.answers and self.answers[0].at_s < since_s:
            self.answers.popleft()
        self.answers.append(answer)

    @property
    def last(self) -> Description | None:
        """Return the last answer, or None while the server is silent."""
        return self.answers[-1].description if self.answers and not self.silent_s else None

    def difference(self) -> "tuple[float, ServerWork, ServerWork] | None":
        """Return the seconds between the first and the last answer, and the work done at each.

        Returns None if the difference is unknown.
        """
        if self.last is None or len(self.answers) < 2:
            return None
        first, last = self.answers[0].description, self.answers[-1].description
        if first.work is None or last.work is None or last.uptime_s - first.uptime_s < UPTIME_S_MIN:
            return None
        return last.uptime_s - first.uptime_s, first.work, last.work


class ObservedCluster(Struct):
    """The answers of all servers.

    ``begun``: for each target of a move, earlier moments with the number of objects at the target.
    ``sites``: the sites of the servers, where known.
    """

    servers: dict[ServerId, ObservedServer]
    known: KnownConfigurations
    begun: dict[ConfigurationId, deque[tuple[float, int]]]
    now_s: float = 0.0
    sites: Mapping[ServerId, str] = {}


def figures(seen: ObservedCluster) -> dict[str, Any]:
    """Return the parts of the tree from servers: operations, servers, domains, files, moves."""
    heard = seen.servers
    standings = standings_of(seen)
    files = [standing for standing in standings if is_of_file(standing.domain)]
    quorums: dict[ServerId, list[int]] = {}
    for standing in standings:
        for configuration in standing.active:
            for server in configuration.server_ids:
                quorums.setdefault(server, []).append(configuration.quorum_size)
    asked = {id: sum(sizes) / len(sizes) for id, sizes in quorums.items()}
    differences = {
        id: found for id, server in heard.items() if (found := server.difference()) is not None
    }

    def rate(of: Callable[[ServerWork], int], each: Mapping[ServerId, float] = {}) -> float | None:
        return (
            sum(
                (of(to) - of(since)) / s / each.get(id, 1.0)
                for id, (s, since, to) in differences.items()
            )
            if differences
            else None
        )

    waits = {id: _reply_s(server) for id, server in heard.items()}
    return {
        "operations": {
            "reads_per_s": rate(lambda work: work.fetches, asked),
            "writes_per_s": rate(lambda work: work.queries, asked),
            **_latencies(differences.values()),
            "received_bytes_per_s": rate(lambda work: work.received_bytes),
            "sent_bytes_per_s": rate(lambda work: work.sent_bytes),
        },
        "servers": [
            _server(id, server, differences.get(id), waits) | {"site": seen.sites.get(id, "")}
            for id, server in heard.items()
        ],
        "domains": [
            _domain(standing, heard.values()) | {"site": site_of(seen.sites, standing.active[0])}
            for standing in standings
            if not is_of_file(standing.domain)
        ],
        "files": outlook_of_files(files) if files else None,
        "moves": [_move(standing, seen) for standing in standings if len(standing.active) > 1],
    }


def is_credible(description: Description) -> bool:
    """Return whether the answer of a server is possible.

    Amounts must be finite and not negative, and histograms must have a count for each step.
    """
    amounts = [
        description.memory_bytes,
        *(amount for hosted in description.hosted for amount in (hosted.objects, hosted.bytes)),
    ]
    amounts += [
        amount
        for hosted in description.hosted
        if (chain := hosted.chain) is not None
        for amount in structs.astuple(chain)
    ]
    if (stored := description.stored) is not None:
        amounts += [stored.disk_bytes, stored.quarantined, max(stored.free_bytes, 0)]
    if description.work is not None:
        amounts += _counted(description.work)
        if not all(map(_is_histogram, _histograms(description.work))):
            return False
    return 0 <= description.uptime_s <= UPTIME_S_MAX and all(
        0 <= amount <= AMOUNT_MAX for amount in amounts
    )


def _is_histogram(durations: Durations) -> bool:
    edges = [0.0, *durations.bounds_s, UPTIME_S_MAX]
    return len(durations.counts) == len(durations.bounds_s) + 1 >= 2 and all(
        low < high for low, high in pairwise(edges)
    )


def _histograms(work: ServerWork) -> list[Durations]:
    """Return the histograms that a server reported."""
    measured = (work.reading, work.writing, work.queueing, work.committing)
    return [durations for durations in measured if durations is not None]


def _counted(work: ServerWork) -> tuple[int, ...]:
    """Return all counters that only grow while a server runs."""
    return (
        work.queries,
        work.fetches,
        work.puts,
        work.received_bytes,
        work.sent_bytes,
        *(count for durations in _histograms(work) for count in durations.counts),
    )


def _follows(later: Description, earlier: Description) -> bool:
    """Return whether both answers are of the same run of the server: no counter has decreased."""
    if later.work is None or earlier.work is None:
        return later.uptime_s >= earlier.uptime_s
    grown = all(
        now >= before
        for now, before in zip(_counted(later.work), _counted(earlier.work), strict=False)
    )
    return later.uptime_s >= earlier.uptime_s and grown


def standings_of(seen: ObservedCluster) -> list[DomainState]:
    """Return the standing of each known domain, `default` first."""
    described = {id: server.last for id, server in seen.servers.items()}
    identities = {
        id: description.identity for id, description in described.items() if description is not None
    }
    full = {
        id
        for id, description in described.items()
        if description is not None and description.stored is not None and description.stored.full
    }
    troubles = {id: server.why for id, server in seen.servers.items() if server.why}
    domains = sorted(seen.known.domains, key=lambda domain: (domain != "default", domain))
    hosted = {id: server.hosted for id, server in seen.servers.items()}
    chains = [seen.known.active(domain) for domain in domains]
    return [
        standing_of(active, identities, full, troubles, log=chains_seen(active, hosted))
        for active in chains
    ]


def percentile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """Return the duration that a ``share`` of all operations do not exceed.

    The value lies on a straight line within its step of the histogram; None without operations.
    """
    rank = share * sum(counts)
    if rank <= 0:
        return None
    edges = [0.0, *bounds, bounds[-1]]
    for position, reached in enumerate(accumulate(counts)):
        if reached >= rank:
            return (
                edges[position]
                + (edges[position + 1] - edges[position])
                * (rank - reached + counts[position])
                / counts[position]
            )
    return None


def _latencies(
    differences: "Iterable[tuple[float, ServerWork, ServerWork]]",
) -> dict[str, float | None]:
    pairs = [(since, to) for _, since, to in differences]
    figures: dict[str, float | None] = {}
    for name, what in LATENCIES.items():
        histograms: list[tuple[Durations, Durations]] = [
            (first, last)
            for since, to in pairs
            if (first := getattr(since, what)) is not None
            and (last := getattr(to, what)) is not None
        ]
        bounds = histograms[0][0].bounds_s if histograms else ()
        same = [
            (since.counts, to.counts)
            for since, to in histograms
            if since.bounds_s == to.bounds_s == bounds
        ]
        counts = [
            sum(to[step] - since[step] for since, to in same) for step in range(len(bounds) + 1)
        ]
        figures |= {
            f"{name}_p{percent}_s": percentile(percent / 100, bounds, counts) if bounds else None
            for percent in (50, 99)
        }
    return figures


def _reply_s(server: ObservedServer) -> float | None:
    """Return the median reply time of a server.

    The first of several answers is left out: a connection was made for it.
    """
    if server.last is None:
        return None
    return median([answer.took_s for answer in server.answers][1:] or [server.answers[0].took_s])


def _state(id: ServerId, server: ObservedServer, waits: Mapping[ServerId, float | None]) -> str:
    description, own = server.last, waits[id]
    if description is None or own is None:
        return "silent"
    if description.stored is not None and description.stored.full:
        return "disk full"
    others = [wait for other, wait in waits.items() if wait is not None and other != id]
    return (
        "slow" if others and own > max(SLOW_SERVER_S, SLOW_SERVER_TIMES * median(others)) else "up"
    )


def _server(
    id: ServerId,
    server: ObservedServer,
    found: "tuple[float, ServerWork, ServerWork] | None",
    waits: Mapping[ServerId, float | None],
) -> dict[str, Any]:
    description = server.last
    shown: dict[str, Any] = {
        "id": id,
        "address": server.address.partition("/")[0],
        "state": _state(id, server, waits),
    }
    if description is None:
        return shown | {"silent_s": round(server.silent_s, 1), "why": server.why or NO_ANSWER}
    rates = None
    if found is not None:
        s, since, to = found
        rates = (to.queries + to.fetches + to.puts - since.queries - since.fetches - since.puts) / s
    stored = description.stored
    return shown | {
        "reply_s": waits[id],
        "requests_per_s": rates,
        **_latencies([found] if found is not None else []),
        "objects": sum(hosted.objects for hosted in server.hosted),
        "bytes": sum(hosted.bytes for hosted in server.hosted),
        "disk_bytes": None if stored is None else stored.disk_bytes,
        "disk_free_bytes": None if stored is None or stored.free_bytes < 0 else stored.free_bytes,
        "damaged": 0 if stored is None else stored.quarantined,
        "memory_bytes": description.memory_bytes,
        "uptime_s": round(description.uptime_s, 3),
        "identity": description.identity,
        "version": description.version,
        "core": description.core,
        "counts": description.work is not None,
    }


def _held(
    configuration: Configuration, servers: Iterable[ObservedServer]
) -> list[ConfigurationReport]:
    """Return the reports of the servers that hold ``configuration``, the most objects first."""
    held = [
        hosted
        for server in servers
        for hosted in server.hosted
        if hosted.configuration.id == configuration.id
    ]
    return sorted(held, key=lambda hosted: -hosted.objects)


def _domain(standing: DomainState, servers: Iterable[ObservedServer]) -> dict[str, Any]:
    """Return the figures of a domain.

    ``objects``: the largest number on any server, or the entries of a log; ``bytes``: the sum over
    all servers.
    """
    finalized = standing.active[0]
    held = _held(finalized, servers)
    return {
        "domain": standing.domain,
        "index": finalized.index,
        "configuration": finalized.describe(),
        "pending": [configuration.describe() for configuration in standing.active[1:]],
        "reads_survive": standing.reading,
        "writes_survive": standing.margin,
        "missing": standing.missing,
        "outlook": standing.outlook(),
        "objects": (
            log.upcoming - log.first if (log := standing.log) is not None else held[0].objects
        )
        if held
        else 0,
        "bytes": sum(hosted.bytes for hosted in held),
        "log": standing.log.as_data() if standing.log is not None else None,
    }


def _move(standing: DomainState, seen: ObservedCluster) -> dict[str, Any]:
    """Return the progress of a move. ``remaining_s`` is None if no objects arrive."""
    source, target = standing.active[0], standing.active[-1]
    total, moved = (
        objects_of(source, 1, seen) if standing.log is None else standing.log.total,
        moved_of(standing, seen),
    )
    begun = seen.begun.get(target.id)
    at_s, before = begun[0] if begun else (seen.now_s, moved)
    per_s = (moved - before) / (seen.now_s - at_s) if seen.now_s > at_s else 0.0
    left = max(total - moved, 0)
    return {
        "domain": standing.domain,
        "from": source.index,
        "to": target.index,
        "configuration": target.describe(),
        "objects": max(total, moved),
        "moved": moved,
        "objects_per_s": per_s,
        "remaining_s": left / per_s if per_s > 0 else None,
    }


def moved_of(standing: DomainState, seen: ObservedCluster) -> int:
    """Return the number of objects that a quorum of the target has.

    For a log: the number of older entries that all servers of the last chain have.
    """
    target = standing.active[-1]
    return (
        objects_of(target, target.quorum_size, seen) if standing.log is None else standing.log.moved
    )


def objects_of(configuration: Configuration, servers: int, seen: ObservedCluster) -> int:
    """Return the largest number of objects that at least ``servers`` servers hold."""
    held = _held(configuration, seen.servers.values())
    return held[servers - 1].objects if len(held) >= servers else 0
