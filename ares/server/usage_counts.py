"""The use of domains: a server counts requests by domain and by the client's site.

A client says its site itself (docs/sites.md). Counts decay, and therefore show recent use. Counts
are bounded: only known sites and configurations are counted, and a limited number of pairs. No name
of a key is kept.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ares.model.identity import ConfigurationId, DomainName
from ares.model.messages import (
    SITES_REPORTED_MAX,
    AnyMessage,
    AskedFrom,
    GetData,
    GetTag,
    PutData,
    Usage,
)
from ares.net.port import Sender
from ares.replica.configuration_state import ConfigurationState

HALF_LIFE_S = 5.0
DECAY_S = 1.0
"""Seconds between two decays of the counts."""

PAIRS_MAX = 4096
"""Pairs of a configuration and a site that are counted at once."""

NEGLIGIBLE = 0.1
"""Size below which a count is dropped."""

_COUNTED = frozenset({GetTag, GetData, PutData})
_PER_S = math.log(2) / HALF_LIFE_S


class UsageCounts:
    """The counts of requests by clients at ``sites`` about the configurations in ``hosted``.

    ``clock``: seconds. ``chance``: a random number from 0 to 1, below 1. ``any``: sites exist, and
    requests are counted.
    """

    def __init__(
        self,
        sites: Iterable[str],
        hosted: Mapping[ConfigurationId, ConfigurationState],
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
        """Count a batch. A message of the batch, chosen by chance, counts for all.

        To look at each message takes half as long as to answer the message. With keys, no byte of a
        client is read before the key is known. A request of a mover carries a successor, and is not
        counted.
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
        """Return whether this client's requests are counted."""
        return getattr(sender, "site", "") in self._counts

    def count(self, sender: Sender, id: ConfigurationId, number: int) -> None:
        """Count ``number`` requests about a configuration, of a client at a counted site."""
        self._decay()
        counts = self._counts[sender.site]  # type: ignore[attr-defined]
        if id in counts:
            counts[id] += number
        elif id in self._hosted and self._pairs < PAIRS_MAX:
            counts[id] = float(number)
            self._pairs += 1

    def usage(self, domains: Sequence[DomainName]) -> tuple[Usage, ...]:
        """Return the use of the ``domains`` of this server.

        The time is proportional to the number of all configurations of this server.
        """
        self._decay()
        hosted: dict[DomainName, list[ConfigurationState]] = {domain: [] for domain in domains}
        for hosting in self._hosted.values():
            if (own := hosted.get(hosting.configuration.domain)) is not None:
                own.append(hosting)
        return tuple(
            Usage(domain, _newest(own).bytes, self._asked(own))
            for domain, own in hosted.items()
            if own
        )

    def _asked(self, own: Sequence[ConfigurationState]) -> tuple[AskedFrom, ...]:
        totals = {
            site: sum(counts.get(hosting.configuration.id, 0.0) for hosting in own) * _PER_S
            for site, counts in self._counts.items()
        }
        most = sorted(totals.items(), key=lambda pair: -pair[1])[:SITES_REPORTED_MAX]
        return tuple(AskedFrom(site, per_s) for site, per_s in most if per_s > 0)

    def _decay(self) -> None:
        """Let the counts decay. After a step back of the clock the counts stay as they are."""
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


def _newest(own: Sequence[ConfigurationState]) -> ConfigurationState:
    return max(own, key=lambda hosting: hosting.configuration.index)
