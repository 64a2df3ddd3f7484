"""Histograms of latencies, with a high dynamic range: every bucket is 1 % wide, at any latency.

A histogram is a count by bucket. Histograms of several processes add up, and pass as JSON.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from ares.results.load_points import LoadLatency, Spread

BUCKETS_PER_E = 100
"""Buckets for a factor of e."""

LATENCY_MIN_S = 1e-7


def bucket(seconds: float) -> int:
    """Return the bucket of a latency."""
    return round(BUCKETS_PER_E * math.log(max(seconds, LATENCY_MIN_S)))


def counted(latencies_s: Iterable[float]) -> Counter[int]:
    """Return the histogram of latencies in seconds."""
    return Counter(map(bucket, latencies_s))


def within_s(counts: Mapping[int, int], share: float) -> float:
    """Return the seconds that ``share`` of the operations stayed within.

    NaN without operations.
    """
    left = share * sum(counts.values())
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return math.exp(number / BUCKETS_PER_E)
    return math.nan


def latency_of(counts: Mapping[int, int]) -> LoadLatency | None:
    """Return number, median, 99th percentile and mean, or `None` without operations."""
    if not counts:
        return None
    total = sum(counts.values())
    sum_s = sum(math.exp(number / BUCKETS_PER_E) * count for number, count in counts.items())
    return LoadLatency(total, within_s(counts, 0.5), within_s(counts, 0.99), sum_s / total)


def spread_of(counts: Mapping[int, int]) -> Spread | None:
    """Return median and 99th percentile, or `None` without operations."""
    return Spread(within_s(counts, 0.5), within_s(counts, 0.99)) if counts else None
