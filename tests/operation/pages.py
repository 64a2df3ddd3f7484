"""Readers of a process's pages, and of the samples of a page of metrics."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def fetch(address: str, path: str) -> tuple[int, str]:
    """Return HTTP status and content."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def health(address: str) -> tuple[int, dict[str, Any]]:
    status, text = fetch(address, "/health")
    return status, json.loads(text)


async def elsewhere(function: Any, *arguments: Any) -> Any:
    """Run the function in a thread: the event loop of the test must be free to answer."""
    return await asyncio.to_thread(function, *arguments)


def samples(text: str) -> dict[str, float]:
    """Return values by name and labels, as in ``ares_requests_total{kind="get_tag"}``.

    Raises ValueError for text unreadable for Prometheus.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in found, name
            found[name] = sample.value
    return found


def check_histogram(found: dict[str, float], name: str) -> float:
    """Check the buckets, which only rise, up to the count; return the count."""
    buckets = [value for key, value in found.items() if key.startswith(f"{name}_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found[f"{name}_count"] == found[f'{name}_bucket{{le="+Inf"}}']
    assert found[f"{name}_sum"] >= 0
    return found[f"{name}_count"]
