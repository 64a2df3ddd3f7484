"""Reconfiguration in a program's view, without sockets (ares/client/{manager,store}.py)."""

import asyncio
import itertools

import msgspec
import pytest

from ares.client.runner import ASKING, HINT_ATTEMPTS
from ares.compiled import replica_parts
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration
from ares.model.errors import (
    BadInput,
    ConfigurationRefused,
    ConnectionClosed,
    ConsensusUnavailable,
    Unavailable,
)
from ares.model.units import MIB
from ares.platform import tasks
from ares.reconfig.view import Switches
from ares.replica.replica import Replica
from ares.server.storage_server import StorageServer
from tests.inproc.network import InprocListener
from tests.protocol.protocol_world import CARRIED

EC = Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3)
ABD = Configuration.abd(["s4", "s5", "s6"])


async def test_reconfigure_beside_writers_and_readers(cluster):
    """A reader gets the last acknowledged value or a newer value, during any moves."""
    writer, reader, mover = (
        cluster.manager(switches=Switches(fast_read=fast)) for fast in (True, False, True)
    )
    keys = [f"key{number}" for number in range(5)]
    await asyncio.gather(*(writer.write(key, b"0") for key in keys))
    written, seen, stopped = dict.fromkeys(keys, 0), [], False

    async def write_on(key):
        for number in itertools.count(1):
            if stopped:
                return
            await writer.write(key, b"%d" % number)
            written[key] = number

    async def read_on(key):
        while not stopped:
            floor = written[key]
            value = int(await reader.read(key))
            assert value >= floor, "a completed write is lost"
            seen.append(value)

    loops = [asyncio.create_task(loop(key)) for loop in (write_on, read_on) for key in keys]
    told = []
    for wished in (EC, ABD, EC):
        result = await mover.reconfigure(wished, progress=told.append)
        assert result.ours
        assert result.configuration.same_content(await mover.identified(wished))
        assert result.moved + result.skipped == len(keys)
    stopped = True
    await asyncio.gather(*loops)
    assert len(seen) > 10
    stages = [progress.stage for progress in told]
    assert stages[0] == "read-config"
    assert {"update-config", "finalize-config", "gc-config"} <= set(stages)
    assert max(progress.moved for progress in told) == len(keys)
    for key in keys:
        assert int(await cluster.manager().read(key)) == written[key]
    assert mover.configuration.index == 3


async def test_a_large_value_moves_to_new_servers(cluster):
    store = cluster.manager()
    value = bytes(range(256)) * (3 * MIB // 256) + b"end"
    await store.write("large", value)
    assert (await store.reconfigure(EC)).bytes == len(value)
    cluster.stop("s0", "s1", "s6")
    assert await cluster.manager().read("large") == value


async def test_a_new_configuration_begins_with_servers_that_run(cluster):
    store = cluster.manager()
    cluster.stop("s5")
    with pytest.raises(ConfigurationRefused, match=r"s5 does not answer.*Nothing was changed"):
        await store.reconfigure(EC)
    with pytest.raises(ConfigurationRefused, match="s5"):
        await store.domain("photos", create=ABD)
    with pytest.raises(BadInput, match="unknown server s9"):
        await store.reconfigure(Configuration.abd(["s0", "s1", "s9"]))
    assert store.configuration == cluster.initial
    assert (await cluster.consensus.describe(1.0))[0].decisions == 0


async def test_an_address_at_which_another_server_answers_is_refused(cluster):
    """This includes addresses of another cluster file: s6 must not be taken for s5."""
    book = cluster.book | {
        "s5": msgspec.structs.replace(cluster.book["s5"], address=cluster.book["s6"].address)
    }
    store = cluster.manager(book=book)
    for wished in (EC, ABD):
        with pytest.raises(BadInput, match="at host6:1 answers s6, not s5"):
            await store.reconfigure(wished)
    with pytest.raises(BadInput, match="at host6:1 answers s6, not s5"):
        await store.create_domain("photos", EC)
    assert store.configuration == cluster.initial
    assert (await cluster.consensus.describe(1.0))[0].decisions == 0
    assert (await store.reconfigure(Configuration.abd(["s3", "s4", "s6"]))).ours, (
        "the others are who they are"
    )


async def test_a_decision_for_another_cluster_is_refused(cluster):
    """The consensus service runs on the journals of another cluster file."""
    other = ABD.resolved(cluster.book).at("default", 0)
    for name, index in (("default", 1), ("photos", 0)):
        await cluster.consensus.propose(
            EC.resolved(cluster.book).at(name, index, other.id), 99, 1.0
        )
    store = cluster.manager()
    await store.write("key", b"v")
    with pytest.raises(ConfigurationRefused, match="of another cluster"):
        await store.reconfigure(ABD)
    with pytest.raises(ConfigurationRefused, match="of another cluster"):
        await store.create_domain("photos", ABD)
    assert [domain.name async for domain in store.domains()] == ["default"]
    status = await store.status()
    assert [
        hosted.configuration for described in status.servers.values() for hosted in described.hosted
    ] == [cluster.initial] * 3
    assert {
        hosted.successor for described in status.servers.values() for hosted in described.hosted
    } == {None}
    assert await store.read("key") == b"v"


async def test_reconfigurations_at_once_in_one_manager(cluster):
    """Each caller is told whether its own wish was decided.

    The client of the decided proposal does not matter.
    """
    store, wishes = cluster.manager(), [EC, ABD, EC]
    await store.write("key", b"v")
    results = await asyncio.gather(*(store.reconfigure(wished) for wished in wishes))
    for result, wished in zip(results, wishes, strict=True):
        assert result.ours == result.configuration.same_content(await store.identified(wished))
    assert any(result.ours for result in results)
    for place in {result.configuration.index for result in results}:
        assert (
            len(
                {
                    result.configuration.id
                    for result in results
                    if result.configuration.index == place
                }
            )
            == 1
        )
    assert await cluster.manager().read("key") == b"v"


async def test_reconfigurers_that_race_agree(cluster):
    stores = [cluster.manager(), cluster.manager()]
    await stores[0].write("key", b"v")
    results = await asyncio.gather(stores[0].reconfigure(EC), stores[1].reconfigure(ABD))
    placed = {}
    for result in results:
        assert (
            placed.setdefault(result.configuration.index, result.configuration)
            == result.configuration
        )
    assert any(result.ours for result in results)
    assert await cluster.manager().read("key") == b"v"


class NoConsensus:
    """A consensus service that never answers."""

    async def propose(self, configuration, proposer, timeout_s):
        await asyncio.Event().wait()

    async def hint(self, domain, timeout_s):
        return None

    async def close(self):
        pass


async def test_without_consensus_reads_and_writes_go_on_and_reconfiguration_ends_at_its_timeout(
    cluster,
):
    store = cluster.manager(consensus=NoConsensus())
    await store.write("key", b"v")
    with pytest.raises(
        Unavailable, match=r"reconfiguration of 'default'.*the proposal may still be decided"
    ) as caught:
        await store.reconfigure(EC, timeout_s=0.5)
    assert caught.value.may_have_taken_effect
    with pytest.raises(
        Unavailable, match=r"creation of domain 'photos'.*the proposal may still be decided"
    ) as caught:
        await store.create_domain("photos", EC, timeout_s=0.5)
    assert caught.value.may_have_taken_effect
    assert await store.read("key") == b"v"
    assert store.configuration == cluster.initial


class Electing:
    """A consensus service without a leader for a number of questions."""

    def __init__(self, service, questions):
        self.service, self.left, self.close = service, questions, service.close

    async def hint(self, domain, timeout_s):
        self.left -= 1
        if self.left >= 0:
            raise ConsensusUnavailable("no leader is elected")
        return await self.service.hint(domain, timeout_s)


async def forgotten(cluster, *names):
    """Restart these servers without their memory."""
    for name in names:
        server = cluster.book[name]
        await cluster.listeners[int(name[1:])].close()
        cluster.listeners[int(name[1:])] = InprocListener(cluster.network, server.address)
        await cluster.listeners[int(name[1:])].serve(
            StorageServer(
                Replica(
                    server.id, f"f{server.identity[1:]}", cluster.initial, parts=replica_parts()
                )
            ).handler
        )


async def test_a_new_client_is_told_where_the_domain_is_when_a_leader_is_elected(cluster):
    store = cluster.manager()
    await store.write("key", b"v")
    await store.reconfigure(Configuration.abd(["s3", "s4", "s5"]))
    await forgotten(cluster, "s0", "s1", "s2")
    assert (
        await cluster.manager(consensus=Electing(cluster.consensus, HINT_ATTEMPTS - 1)).read("key")
        == b"v"
    )
    with pytest.raises(Unavailable, match="lost its memory"):
        await cluster.manager(consensus=Electing(cluster.consensus, HINT_ATTEMPTS)).read("key")


class Mistaken(LocalConsensus):
    """A consensus service whose client has a mistake."""

    async def propose(self, configuration, proposer, timeout_s):
        raise RuntimeError("a mistake")

    async def hint(self, domain, timeout_s):
        raise RuntimeError("a mistake")


async def test_a_mistake_beside_an_operation_ends_the_operation(cluster):
    """Without an end the operation would wait for its timeout, with nothing in the log."""
    store = cluster.manager(consensus=Mistaken(), timeout_s=10_000.0)
    await store.write("key", b"v")
    before = tasks.failures.counts[ASKING]
    async with asyncio.timeout(60):
        with pytest.raises(ConsensusUnavailable, match="a mistake in ares itself"):
            await store.reconfigure(EC)
        await cluster.manager().reconfigure(Configuration.abd(["s3", "s4", "s5"]))
        await forgotten(cluster, "s0", "s1", "s2")
        with pytest.raises(Unavailable, match="lost its memory"):
            await cluster.manager(consensus=Mistaken(), timeout_s=10_000.0).read("key")
    assert tasks.failures.counts[ASKING] >= before + 2


async def test_a_cancelled_reconfiguration_is_finished_by_the_next(cluster):
    store = cluster.manager(switches=CARRIED)
    await asyncio.gather(*(store.write(f"key{number}", b"v") for number in range(20)))
    moving = asyncio.Event()
    running = asyncio.create_task(
        store.reconfigure(EC, progress=lambda progress: moving.set() if progress.moved else None)
    )
    await moving.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await cluster.manager().reconfigure(ABD)
    assert result.configuration.index in (1, 2)
    other = cluster.manager()
    assert [await other.read(f"key{number}") for number in range(20)] == [b"v"] * 20


async def test_closing_during_update_config_says_that_it_may_have_taken_effect(cluster):
    store = cluster.manager(timeout_s=3600, switches=CARRIED)
    await asyncio.gather(*(store.write(f"key{number}", b"v") for number in range(20)))
    cluster.put_taken.clear()
    running = asyncio.create_task(store.reconfigure(EC))
    await cluster.put_taken.wait()
    await store.close()
    with pytest.raises(ConnectionClosed, match="configuration 1 is decided and pending") as caught:
        async with asyncio.timeout(60):
            await running
    assert caught.value.may_have_taken_effect
    result = await cluster.manager().reconfigure(ABD)
    assert result.configuration.index == 2
    other = cluster.manager()
    assert [await other.read(f"key{number}") for number in range(20)] == [b"v"] * 20


async def test_a_move_whose_target_is_cut_off_says_what_stops_and_until_when(cluster):
    """The report on reads and writes is true for a client."""
    store, other = (cluster.manager(timeout_s=1.0, switches=CARRIED) for _ in range(2))
    await asyncio.gather(*(store.write(f"key{number}", b"v") for number in range(20)))
    target = Configuration.abd(["s3", "s4", "s5"])

    def cut_off(progress):
        if progress.stage == "update-config":
            cluster.stop("s3")
            cluster.stop("s4")

    with pytest.raises(Unavailable) as caught:
        await store.reconfigure(target, progress=cut_off, timeout_s=1.0)
    told = str(caught.value)
    assert "nothing is lost" in told
    assert "need a quorum of the old servers and one of s3, s4, s5" in told
    assert "fail while either does not answer" in told
    assert "go on" not in told
    for user in (store, other):
        with pytest.raises(Unavailable):
            await user.write("key0", b"w")
        with pytest.raises(Unavailable):
            await user.read("key1")
    for name in ("s3", "s4"):
        cluster.restart(name)
    assert await other.read("key1") == b"v"
    await other.write("key0", b"later")
    assert (await cluster.manager().reconfigure(target)).configuration.index == 1
    assert await cluster.manager().read("key0") == b"later"


async def test_a_progress_callback_that_raises_fails_the_call(cluster):
    store = cluster.manager(timeout_s=3600)
    await store.write("key", b"v")

    def progress(told):
        if told.moved:
            raise KeyError("the caller's own mistake")

    with pytest.raises(KeyError, match="own mistake"):
        async with asyncio.timeout(60):
            await store.reconfigure(EC, progress=progress)


async def test_servers_that_run_with_another_cluster_file_are_noticed_before_anything_is_proposed(
    cluster,
):
    """These servers have the same names and addresses, and another c0.

    After the decision they would refuse the configuration for ever.
    """
    other = Configuration.abd([cluster.book["s4"], cluster.book["s5"], cluster.book["s6"]]).at(
        "default", 0
    )
    for listener in cluster.listeners[4:6]:
        await listener.close()
    for name in ("s4", "s5"):
        server = cluster.book[name]
        listener = InprocListener(cluster.network, server.address)
        await listener.serve(
            StorageServer(Replica(server.id, server.identity, other, parts=replica_parts())).handle
        )
        cluster.listeners.append(listener)
    store = cluster.manager()
    await store.write("key", b"v")
    with pytest.raises(BadInput, match="another cluster"):
        await store.reconfigure(Configuration.abd(["s4", "s5", "s6"]))
    assert (await cluster.consensus.describe(1))[0].decisions == 0
    assert await store.read("key") == b"v"
