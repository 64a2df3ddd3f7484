"""Who uses which domain: a server counts the requests of its clients by domain and by the site where they say they are (docs/sites.md).

Counts decay, so that they say how it is of late. They are bounded: only sites and configurations that the server knows are counted, and only so many
pairs of them. No name of a key is kept. Times are arguments.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ares.model.identity import ConfigurationId, DomainName
from ares.model.messages import SITES_TOLD_MAX, AnyMessage, AskedFrom, GetData, GetTag, PutData, Usage
from ares.replica.hosting import Hosting

HALF_LIFE_S = 5.0
DECAY_S = 1.0
"""How often counts decay."""

PAIRS_MAX = 4096
"""Of a configuration and a site, that are counted at once."""

NEGLIGIBLE = 0.1
"""Counts that are smaller are dropped."""

_COUNTED = frozenset({GetTag, GetData, PutData})
_PER_S = math.log(2) / HALF_LIFE_S


class Users:
    """Counts what clients at ``sites`` ask of the configurations in ``hosted``."""

    def __init__(self, sites: Iterable[str], hosted: Mapping[ConfigurationId, Hosting]) -> None:
        self._hosted = hosted
        self._counts: dict[str, dict[ConfigurationId, float]] = {site: {} for site in sites}
        self._pairs = 0
        self._decayed_at: float | None = None

    def counting(self, site: str, messages: Iterable[AnyMessage], now: float) -> Iterable[AnyMessage]:
        """``messages`` of a client at ``site``, which are counted as they are taken. What moves data carries a successor, and is not counted."""
        counts = self._counts.get(site)
        if counts is None:
            return messages
        self._decay(now)
        return self._counted(counts, messages)

    def _counted(self, counts: dict[ConfigurationId, float], messages: Iterable[AnyMessage]) -> Iterator[AnyMessage]:
        for message in messages:
            if type(message) in _COUNTED and (type(message) is not GetData or message.successor is None):
                id: Any = message.configuration  # type: ignore[union-attr]
                if id in counts:
                    counts[id] += 1.0
                elif id in self._hosted and self._pairs < PAIRS_MAX:
                    counts[id] = 1.0
                    self._pairs += 1
            yield message

    def usage(self, domains: Sequence[DomainName], now: float) -> tuple[Usage, ...]:
        """How these are used, of those that are here; takes as long as going through all configurations that are."""
        self._decay(now)
        hosted: dict[DomainName, list[Hosting]] = {domain: [] for domain in domains}
        for hosting in self._hosted.values():
            if (own := hosted.get(hosting.configuration.domain)) is not None:
                own.append(hosting)
        return tuple(Usage(domain, _newest(own).bytes, self._asked(own)) for domain, own in hosted.items() if own)

    def _asked(self, own: Sequence[Hosting]) -> tuple[AskedFrom, ...]:
        totals = {site: sum(counts.get(hosting.configuration.id, 0.0) for hosting in own) * _PER_S for site, counts in self._counts.items()}
        most = sorted(totals.items(), key=lambda pair: -pair[1])[:SITES_TOLD_MAX]
        return tuple(AskedFrom(site, per_s) for site, per_s in most if per_s > 0)

    def _decay(self, now: float) -> None:
        """A clock that went backwards costs nothing: counts stay as they are."""
        if self._decayed_at is None:
            self._decayed_at = now
        passed_s = now - self._decayed_at
        if 0 <= passed_s < DECAY_S:
            return
        self._decayed_at = now
        left = 0.5 ** (max(passed_s, 0.0) / HALF_LIFE_S)
        for counts in self._counts.values():  # in place: somebody may be in the middle of counting
            for id, count in list(counts.items()):
                if count * left >= NEGLIGIBLE:
                    counts[id] = count * left
                else:
                    del counts[id]
        self._pairs = sum(map(len, self._counts.values()))


def _newest(own: Sequence[Hosting]) -> Hosting:
    return max(own, key=lambda hosting: hosting.configuration.index)
