"""Runs over Unix sockets: every second seed, and no silent way around the sockets."""

import tempfile
from pathlib import Path

import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.tables import TransportName
from ares.model.identity import ServerId
from ares.testing.socket_runs import has_sockets, make_room_for_sockets, not_over_sockets


@pytest.mark.parametrize(
    ("seed", "transport", "letters", "expected"),
    [
        (3, "native", 1, True),
        (4, "native", 1, False),
        (3, "libzmq", 1, False),
        (3, "native", 100, False),
    ],
)
def test_every_second_run_has_sockets_where_they_are_possible(
    seed: int, transport: TransportName, letters: int, expected: bool
) -> None:
    plan = InitPlan(servers=3, consensus=1, base_port=0, transport=transport)
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        settings = create(Path(directory) / ("c" * letters), plan)
        possible = make_room_for_sockets(settings, seed)
        assert (possible, has_sockets(settings)) == (expected, expected)
        s0, s1 = map(ServerId, ("s0", "s1"))
        told = not_over_sockets(settings, [s0, s1], {s1})
    assert told == (["s0 was not reached over its Unix socket"] if expected else [])
