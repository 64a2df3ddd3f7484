"""The other stores of the study of sites: their configurations, and real runs.

The real runs on three sites need ARES_TEST_PEERS=1 and root.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from experiments.bench.ansible_roles import described
from experiments.bench.store_processes import ProgramNotStarted, await_that
from experiments.blocking_calls import in_thread
from experiments.sites import cassandra, ipfs, rados
from experiments.sites.fog_network import FogNetwork, bed, obstacle
from experiments.sites.orders import Operation, Order
from experiments.sites.site_store import OperationFailed, holders
from experiments.sites.site_users import user
from experiments.sites.store_table import SITE_STORES, module_of

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from experiments.sites.cassandra_driver import CassandraUser

SITES = ["nantes", "rennes", "lille", "lyon"]
PEERS = [name for name, row in SITE_STORES.items() if row.module != "ares_store"]


class TestPlacement:
    def test_copies_are_at_the_site_and_those_that_follow(self) -> None:
        assert holders(SITES, "rennes", 1) == ["rennes"]
        assert holders(SITES, "lille", 3) == ["lille", "lyon", "nantes"]

    def test_there_is_one_copy_at_a_site_at_most(self) -> None:
        assert holders(["nantes", "rennes"], "rennes", 3) == ["rennes", "nantes"]


class TestRados:
    def test_a_rule_takes_the_sites_that_hold_copies_in_their_order(self) -> None:
        rules = rados.crush_map(SITES, 3).partition("rule ")[2].split("rule ")
        taken = {
            rule.split()[0]: [line.split()[2] for line in rule.splitlines() if "step take" in line]
            for rule in rules
        }
        assert taken == {site: holders(SITES, site, 3) for site in SITES}

    def test_every_site_has_its_own_osd(self) -> None:
        buckets = rados.crush_map(SITES, 1).partition("rule ")[0].split("host ")[2:]
        assert [(bucket.split()[0], bucket.split("item ")[1].split()[0]) for bucket in buckets] == [
            (site, f"osd.{number}") for number, site in enumerate(SITES)
        ][1:]

    def test_nothing_is_written_outside_of_its_directory(self) -> None:
        said = rados.configuration("a-cluster", "[v2:10.0.0.1:3300/0]", Path("/made/for/it"))
        settings = dict(line.split(" =", 1) for line in said.splitlines() if " =" in line)
        assert {settings[name].strip() for name in ("run dir", "crash dir")} == {"/made/for/it"}
        assert {settings[name].strip() for name in ("admin socket", "log file")} == {""}


IPFS_CONFIG = {
    "Identity": {"PeerID": "12D3"},
    "Bootstrap": ["auto"],
    "Routing": {"DelegatedRouters": ["auto"]},
    "DNS": {"Resolvers": {".": "auto"}},
    "Datastore": {"Spec": {"mounts": [{"type": "flatfs", "sync": True}, {"type": "levelds"}]}},
}


class TestIpfs:
    def test_an_ipfs_daemon_knows_only_the_other_daemons(self) -> None:
        others = ["/ip4/10.0.0.2/tcp/4001/p2p/12D4"]
        made = ipfs.configured(IPFS_CONFIG, "10.0.0.1", others)
        assert made["Bootstrap"] == others
        assert "auto" not in str(made)
        assert not any(made["Swarm"]["Transports"]["Network"].values())
        assert made["Identity"] == IPFS_CONFIG["Identity"]

    def test_an_ipfs_daemon_syncs_no_block(self) -> None:
        assert ipfs.configured(IPFS_CONFIG, "10.0.0.1", [])["Datastore"]["Spec"]["mounts"] == [
            {"type": "flatfs", "sync": False},
            {"type": "levelds"},
        ]

    def test_a_request_without_a_server_has_failed(self) -> None:
        with pytest.raises(OperationFailed, match=r"id at 127\.0\.0\.1"):
            asyncio.run(ipfs.connect({"host": "127.0.0.1", "port": 1}, "nantes"))


NODE = {
    "address": "10.0.0.1", "storage_port": 7000, "native_port": 9042, "jmx_port": 7199,
    "seeds": "10.0.0.1:7000", "hosts": ["nantes"],
    "user": "", "directory": "/there", "jars": "/jars", "heap": "256m", "durability": "memory",
}  # fmt: skip


class TestCassandra:
    def files(self, **more: str) -> dict[str, str]:
        return described("cassandra", "nantes", NODE | more).files

    def test_a_node_with_a_site_has_a_data_centre(self) -> None:
        files = self.files(site="nantes")
        assert "endpoint_snitch: GossipingPropertyFileSnitch\n" in files["config/cassandra.yaml"]
        assert "dc=nantes\n" in files["config/cassandra-rackdc.properties"]

    def test_a_node_without_one_is_as_in_the_bench(self) -> None:
        assert "endpoint_snitch: SimpleSnitch\n" in self.files()["config/cassandra.yaml"]

    @pytest.mark.parametrize("size", [0, 1, 1_000_000, 1_000_001, 10_000_000])
    def test_rows_make_the_object(self, size: int) -> None:
        driver = pytest.importorskip("experiments.sites.cassandra_driver")
        value = os.urandom(size)
        rows = driver.rows_of(value)
        assert b"".join(rows) == value
        assert len(rows) == max(1, -(-size // driver.ROW_BYTES))


class Rows:
    """A session of the driver, with rows in memory.

    ``busy`` is the number of refusals at first; ``stops_after`` is the number of successful writes.
    """

    def __init__(self, busy: int = 0, stops_after: int = 1000) -> None:
        self.busy, self.stops_after = busy, stops_after
        self.held: dict[tuple[str, int], SimpleNamespace] = {}
        self.levels: list[int] = []

    def prepare(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(
            bind=lambda values: SimpleNamespace(text=text, values=values, consistency_level=None)
        )

    def execute_async(self, bound: SimpleNamespace) -> SimpleNamespace:
        return SimpleNamespace(
            add_callbacks=lambda succeed, fail: self._answer(bound, succeed, fail)
        )

    def _answer(
        self,
        bound: SimpleNamespace,
        succeed: Callable[[object], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        from cassandra.cluster import NoHostAvailable
        from cassandra.connection import ConnectionBusy

        if self.busy:
            self.busy -= 1
            return fail(NoHostAvailable("no host", {"node": ConnectionBusy("overloaded")}))
        self.levels.append(bound.consistency_level)
        if bound.text.startswith("select"):
            return succeed([self.held[bound.values]] if bound.values in self.held else [])
        if not self.stops_after:
            return fail(NoHostAvailable("no host", {"node": ConnectionError("gone")}))
        self.stops_after -= 1
        name, place, value, places, others = bound.values
        self.held[name, place] = SimpleNamespace(value=value, places=places, others=others)
        return succeed(None)


class TestUsersOfCassandra:
    @pytest.fixture
    def made(self) -> "Callable[..., CassandraUser]":
        driver = pytest.importorskip("experiments.sites.cassandra_driver")
        return lambda session, site="nantes", copies=1: driver.CassandraUser(
            None, session, {"sites": SITES, "copies": copies}, site
        )

    async def test_a_write_that_stops_midway_leaves_the_value_before(
        self, made: "Callable[..., CassandraUser]"
    ) -> None:
        old, new = os.urandom(2_500_000), os.urandom(2_500_000)
        for succeed in range(3):
            session = Rows()
            user = made(session)
            await user.put("nantes/a", old)
            session.stops_after = succeed
            with pytest.raises(OperationFailed, match="gone"):
                await user.put("nantes/a", new)
            assert await user.get("nantes/a") == old

    async def test_a_request_waits_while_the_driver_has_no_room(
        self, made: "Callable[..., CassandraUser]"
    ) -> None:
        user = made(Rows(busy=5))
        await user.put("nantes/a", b"value")
        assert await user.get("nantes/a") == b"value"

    async def test_a_row_that_is_not_there_yet_is_no_value(
        self, made: "Callable[..., CassandraUser]"
    ) -> None:
        session = Rows()
        user = made(session)
        await user.put("nantes/a", bytes(2_000_000))
        session.held = {key: row for key, row in session.held.items() if key[1] == 0}
        with pytest.raises(OperationFailed, match="not all rows"):
            await user.get("nantes/a")
        with pytest.raises(OperationFailed, match="no object"):
            await user.get("nantes/b")

    @pytest.mark.parametrize(
        ("site", "copies", "level"),
        [("nantes", 1, "LOCAL_QUORUM"), ("lyon", 1, "ONE"), ("rennes", 3, "LOCAL_QUORUM")],
    )
    async def test_a_copy_at_the_own_site_is_the_one_that_is_asked(
        self, made: "Callable[..., CassandraUser]", site: str, copies: int, level: str
    ) -> None:
        from cassandra import ConsistencyLevel

        session = Rows()
        user = made(session, site, copies)
        await user.put("nantes/a", b"value")
        await user.get("nantes/a")
        assert session.levels == [getattr(ConsistencyLevel, level)] * 2


class TestMissing:
    def test_it_says_how_to_get_them(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("ARES_BENCH_CASSANDRA", raising=False)
        assert "build_kubo.sh" in (ipfs.missing() or "")
        assert "apt-get install" in (rados.missing() or "")
        assert "apt-get install" in (cassandra.missing() or "")


class TestBlocking:
    async def test_what_a_thread_raises_is_raised(self) -> None:
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)

    async def test_a_cancelled_caller_does_not_wait_for_the_thread(self) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_thread(time.sleep, 0.5), 0.01)
        await asyncio.sleep(0.6)  # the thread returns, without harm

    def test_a_server_that_ended_is_told_with_its_last_words(self, tmp_path: Path) -> None:
        (tmp_path / "node.log").write_text("no such heap")
        with (
            subprocess.Popen(["true"]) as server,
            pytest.raises(ProgramNotStarted, match="node ended: no such heap"),
        ):
            await_that(lambda: False, "it serves", 10.0, tmp_path / "other.log", {"node": server})

    def test_one_that_is_silent_is_given_up(self, tmp_path: Path) -> None:
        with pytest.raises(ProgramNotStarted, match="it serves, but 0 s went by: it said nothing"):
            await_that(lambda: False, "it serves", 0.0, tmp_path / "node.log", {})


@pytest.mark.process
@pytest.mark.skipif(
    os.environ.get("ARES_TEST_PEERS") != "1",
    reason="minutes, and programs that are not ours: ARES_TEST_PEERS=1 runs them",
)
@pytest.mark.parametrize("store", PEERS)
def test_objects_are_read_where_they_were_written_and_elsewhere(store: str) -> None:
    if why := obstacle() or module_of(SITE_STORES[store]).missing():
        pytest.skip(why)
    with bed(SITES[:3]) as made:
        asyncio.run(_written_and_read(made, store))


async def _written_and_read(made: FogNetwork, store: str) -> None:
    deployment = module_of(SITE_STORES[store]).deployment(**SITE_STORES[store].options)
    names = [f"nantes/{number}" for number in range(3)]
    try:
        await deployment.start(made, SITE_STORES[store].replicas)
        async with (
            user(made, store, deployment, "nantes") as writer,
            user(made, store, deployment, "rennes") as reader,
        ):
            wrote = await writer.do(
                Order(
                    tuple(
                        Operation("put", (name,), size)
                        for name, size in zip(names, (100, 1_000_001, 10_000_000), strict=True)
                    )
                )
            )
            own = await writer.do(Order(tuple(Operation("get", (name,)) for name in names)))
            deadline_s = time.monotonic() + 30.0
            while True:  # Cassandra's other copies get a write later
                other = await reader.do(
                    Order(tuple(Operation("get", (name,)) for name in names), known=wrote.known)
                )
                if not any(each.failed for each in other.done) or time.monotonic() > deadline_s:
                    break
                await asyncio.sleep(0.5)
            none = await reader.do(Order((Operation("get", ("nantes/none",)),)))
        assert [each.failed for answer in (wrote, own, other) for each in answer.done] == [""] * 9
        assert none.done[0].failed
    finally:
        await deployment.stop()
