"""Who uses which domain: a server counts the requests of its clients by domain and by the site where they say they are (docs/sites.md).

Counts decay, so that they say how it is of late. They are bounded: only sites and configurations that the server knows are counted, and only so many
pairs of them. No name of a key is kept.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ares.model.identity import ConfigurationId, DomainName
from ares.model.messages import (
    SITES_TOLD_MAX,
    AnyMessage,
    AskedFrom,
    GetData,
    GetTag,
    PutData,
    Usage,
)
from ares.net.port import Sender
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
    """Counts what clients at ``sites`` ask of the configurations in ``hosted``. ``clock``: seconds. ``chance``: a number from 0 to 1, below 1.

    ``any``: whether there are sites, and anybody is counted.
    """

    def __init__(
        self,
        sites: Iterable[str],
        hosted: Mapping[ConfigurationId, Hosting],
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._hosted = hosted
        self._clock = clock
        self._chance = chance
        self._counts: dict[str, dict[ConfigurationId, float]] = {site: {} for site in sites}
        self.any = bool(self._counts)
        self._pairs = 0
        self._decayed_at = clock()

    def seen(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        """A batch came. One of its messages, whichever, counts for all: looking at each takes half as long as answering it.

        With keys, nothing of a client is read before its key was found to be known. What moves data carries a successor, and is not counted.
        """
        if not (self.any and self.counts(sender) and messages):
            return
        number = len(messages)
        message: Any = messages[int(self._chance() * number)]
        if type(message) not in _COUNTED or (
            type(message) is GetData and message.successor is not None
        ):
            return
        self.count(sender, message.configuration, number)

    def counts(self, sender: Sender) -> bool:
        """Whether what this client asks is counted."""
        return getattr(sender, "site", "") in self._counts

    def count(self, sender: Sender, id: ConfigurationId, number: int) -> None:
        """So many requests about a configuration came from a client whose requests are counted."""
        self._decay()
        counts = self._counts[sender.site]  # type: ignore[attr-defined]
        if id in counts:
            counts[id] += number
        elif id in self._hosted and self._pairs < PAIRS_MAX:
            counts[id] = float(number)
            self._pairs += 1

    def usage(self, domains: Sequence[DomainName]) -> tuple[Usage, ...]:
        """How these are used, of those that are here; takes as long as going through all configurations that are."""
        self._decay()
        hosted: dict[DomainName, list[Hosting]] = {domain: [] for domain in domains}
        for hosting in self._hosted.values():
            if (own := hosted.get(hosting.configuration.domain)) is not None:
                own.append(hosting)
        return tuple(
            Usage(domain, _newest(own).bytes, self._asked(own))
            for domain, own in hosted.items()
            if own
        )

    def _asked(self, own: Sequence[Hosting]) -> tuple[AskedFrom, ...]:
        totals = {
            site: sum(counts.get(hosting.configuration.id, 0.0) for hosting in own) * _PER_S
            for site, counts in self._counts.items()
        }
        most = sorted(totals.items(), key=lambda pair: -pair[1])[:SITES_TOLD_MAX]
        return tuple(AskedFrom(site, per_s) for site, per_s in most if per_s > 0)

    def _decay(self) -> None:
        """A clock that went backwards costs nothing: counts stay as they are."""
        now = self._clock()
        passed_s = now - self._decayed_at
        if 0 <= passed_s < DECAY_S:
            return
        self._decayed_at = now
        left = 0.5 ** (max(passed_s, 0.0) / HALF_LIFE_S)
        for counts in self._counts.values():
            for id, count in list(counts.items()):
                if count * left >= NEGLIGIBLE:
                    counts[id] = count * left
                else:
                    del counts[id]
        self._pairs = sum(map(len, self._counts.values()))


def _newest(own: Sequence[Hosting]) -> Hosting:
    return max(own, key=lambda hosting: hosting.configuration.index)
