"""Consensus on a real etcd: kills, no majority, rival proposers, writes by strangers."""

import asyncio
import secrets
import socket
from collections.abc import Iterable

import msgspec
import pytest
from aetcd import rpc

from ares.client.runner import HINT_TIMEOUT_S
from ares.consensus import etcd as etcd_consensus
from ares.consensus.etcd import ETCD_FORMAT, ETCD_MAGIC, EtcdConsensus
from ares.model.configuration import Configuration
from ares.model.decision import Decision
from ares.model.errors import ConfigurationRefused, ConsensusUnavailable, UnreadableDecision
from ares.model.identity import ClientId, DomainName
from ares.model.messages import Decided

from .clusters import PATIENCE_S, configuration, until
from .etcds import CLUSTER, EtcdProcesses

pytestmark = pytest.mark.process

ALICE, BOB, CAROL = ClientId(1), ClientId(2), ClientId(3)
STREAM = 150
DEFAULT = DomainName("default")
DECISION = f"/ares/{CLUSTER.hex()}/decision/default/{7:020d}".encode()
HINT = f"/ares/{CLUSTER.hex()}/hint/default".encode()


async def propose(client: EtcdConsensus, proposer: ClientId, index: int) -> Decided:
    return await client.propose(
        configuration(index, servers=f"s0 s1 t{proposer}"), proposer, PATIENCE_S
    )


async def stream(client: EtcdConsensus, proposer: ClientId, into: list[Decided]) -> None:
    for index in range(STREAM):
        into.append(await propose(client, proposer, index))


def decided_twice(answers: Iterable[Decided]) -> set[int]:
    """Return the indices for which the answers name several decisions."""
    made: dict[int, set[tuple[bytes, int]]] = {}
    for answer in answers:
        made.setdefault(answer.configuration.index, set()).add(
            (answer.configuration.id, answer.proposer)
        )
    return {index for index, different in made.items() if len(different) > 1}


async def again(client: EtcdConsensus, decided: list[Decided]) -> list[Decided]:
    """Return the answers to another proposer."""
    return list(
        await asyncio.gather(
            *(propose(client, CAROL, each.configuration.index) for each in decided)
        )
    )


async def test_etcd_killed_in_a_stream_of_proposals(lone_etcd: EtcdProcesses) -> None:
    """The etcd is killed and restarted three times.

    The answers before, during and after have a single decision for every index.
    """
    lone_etcd.start()
    answers: dict[ClientId, list[Decided]] = {ALICE: [], BOB: []}
    async with asyncio.TaskGroup() as streams:
        for proposer, into in answers.items():
            streams.create_task(stream(lone_etcd.client(), proposer, into))
        for count in (20, 60, 100):
            await until(lambda count=count: len(answers[ALICE]) >= count)
            assert len(answers[ALICE]) < STREAM
            lone_etcd.kill()
            await asyncio.sleep(0.1)
            lone_etcd.start()
    afterwards = await again(lone_etcd.client(), answers[ALICE])
    assert decided_twice([*answers[ALICE], *answers[BOB], *afterwards]) == set()
    assert {each.proposer for each in afterwards} <= {ALICE, BOB}


async def test_the_leader_killed_in_a_stream_of_proposals(etcd: EtcdProcesses) -> None:
    etcd.start()
    one, two, three = etcd.endpoints
    answers: dict[ClientId, list[Decided]] = {ALICE: [], BOB: []}
    leader = await etcd.leader(etcd.client())
    async with asyncio.TaskGroup() as streams:
        streams.create_task(stream(etcd.client(one, two, three), ALICE, answers[ALICE]))
        streams.create_task(stream(etcd.client(three, two, one), BOB, answers[BOB]))
        await until(lambda: len(answers[ALICE]) >= 30)
        assert len(answers[ALICE]) < STREAM
        etcd.kill(leader)
    etcd.start(leader)
    afterwards = await again(etcd.client(leader), answers[ALICE])
    assert decided_twice([*answers[ALICE], *answers[BOB], *afterwards]) == set()


async def test_racing_proposers_agree(etcd: EtcdProcesses) -> None:
    etcd.start()
    rivals = {
        ClientId(number): etcd.client(endpoint)
        for number, endpoint in enumerate(etcd.endpoints * 3)
    }
    for index in range(10):
        answers = await asyncio.gather(
            *(propose(client, proposer, index) for proposer, client in rivals.items())
        )
        assert decided_twice(answers) == set()


async def test_a_put_without_condition_would_be_found_out(
    shared_etcd: EtcdProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the tests above rejects their mistake."""
    conditional = etcd_consensus._put_if

    def put(key: str, revision: int, value: bytes) -> rpc.TxnRequest:
        return rpc.TxnRequest(success=conditional(key, revision, value).success)

    monkeypatch.setattr(etcd_consensus, "_put_if", put)
    client = EtcdConsensus(shared_etcd.settings(), secrets.token_bytes(16))
    assert decided_twice([await propose(client, ALICE, 0), await propose(client, BOB, 0)]) == {0}
    await client.close()


async def test_all_killed_and_restarted_keep_everything(etcd: EtcdProcesses) -> None:
    etcd.start()
    client = etcd.client()
    decided = [await propose(client, ALICE, index) for index in range(20)]
    await client.tell_finalized(decided[-1].configuration, PATIENCE_S)
    etcd.kill()
    etcd.start()
    assert decided_twice([*decided, *await again(client, decided)]) == set()
    assert await client.hint(DEFAULT, PATIENCE_S) == decided[-1].configuration


async def test_without_a_majority_it_is_unavailable_and_then_goes_on(etcd: EtcdProcesses) -> None:
    etcd.start()
    client = etcd.client()
    decided = [await propose(client, ALICE, index) for index in range(5)]
    one, two, three = etcd.endpoints
    etcd.kill(one, two)
    with pytest.raises(
        ConsensusUnavailable, match=r"within 3 s etcd said: .*Reads and writes go on"
    ) as caught:
        await client.propose(configuration(5), BOB, 3.0)
    for dead in (one, two):
        assert f"{dead} (unreachable: Connection refused)" in str(caught.value)
    assert f"{three} (" in str(caught.value)
    assert caught.value.may_have_taken_effect
    [left] = await etcd.described(client, lambda all_: len(all_) == 1 and not all_[0].leader)
    assert (left.member, left.members_reachable, left.members_total) == (three, 1, 3)
    etcd.start(two)
    assert decided_twice([*decided, *await again(client, decided)]) == set()
    await propose(client, BOB, 6)


async def test_members_describe_themselves(etcd: EtcdProcesses) -> None:
    etcd.start()
    client = etcd.client()
    for index in range(3):
        await propose(client, ALICE, index)
    leader = await etcd.leader(client)
    described = await etcd.described(
        client, lambda all_: [each.decisions for each in all_] == [3, 3, 3]
    )
    assert {each.member for each in described} == set(etcd.endpoints)
    assert {(each.leader, each.members_reachable, each.members_total) for each in described} == {
        (leader, 3, 3)
    }
    [alone] = await etcd.client(next(each for each in etcd.endpoints if each != leader)).describe(
        PATIENCE_S
    )
    assert (alone.leader, alone.members_reachable, alone.members_total) == (
        f"m{etcd.endpoints.index(leader)}",
        1,
        3,
    )


def written(content: Configuration) -> bytes:
    return ETCD_MAGIC + bytes([ETCD_FORMAT]) + msgspec.msgpack.encode(Decision(content, 1))


STRANGE = {
    "foreign": (b"hello", "ares did not write"),
    "empty": (b"", "ares did not write"),
    "newer": (
        ETCD_MAGIC + bytes([ETCD_FORMAT + 1]) + b"whatever",
        rf"format {ETCD_FORMAT + 1}, this release reads {ETCD_FORMAT}",
    ),
    "cut": (written(configuration(7))[:-5], "damaged"),
    "no configuration": (
        ETCD_MAGIC + bytes([ETCD_FORMAT]) + msgspec.msgpack.encode([["abd", [], 1], 1]),
        "damaged",
    ),
    "moved": (written(configuration(8)), "index 8 of domain 'default'"),
}


@pytest.mark.parametrize("case", STRANGE)
async def test_what_cannot_be_read_is_a_named_error_and_left_as_it_is(
    shared_etcd: EtcdProcesses, case: str
) -> None:
    value, why = STRANGE[case]
    client, [endpoint] = EtcdConsensus(shared_etcd.settings(), CLUSTER), shared_etcd.endpoints
    for key in (DECISION, HINT):
        await shared_etcd.raw(endpoint, "KV.Put", rpc.PutRequest(key=key, value=value))
    with pytest.raises(UnreadableDecision, match=why) as caught:
        await propose(client, ALICE, 7)
    assert caught.value.key == DECISION.decode()
    assert "was not changed" in str(caught.value)
    with pytest.raises(UnreadableDecision):
        await client.hint(DEFAULT, PATIENCE_S)
    with pytest.raises(UnreadableDecision):
        await client.tell_finalized(configuration(9), PATIENCE_S)
    for key in (DECISION, HINT):
        answer = await shared_etcd.raw(endpoint, "KV.Range", rpc.RangeRequest(key=key))
        assert answer.kvs[0].value == value  # type: ignore[attr-defined]
    await client.close()


async def test_hints_told_at_once_leave_the_latest(shared_etcd: EtcdProcesses) -> None:
    client = EtcdConsensus(shared_etcd.settings(), secrets.token_bytes(16))
    await asyncio.gather(
        *(client.tell_finalized(configuration(index), PATIENCE_S) for index in (3, 9, 1, 7, 5, 8))
    )
    assert await client.hint(DEFAULT, PATIENCE_S) == configuration(9)
    await client.close()


async def test_an_oversized_description_is_refused(shared_etcd: EtcdProcesses) -> None:
    client = EtcdConsensus(shared_etcd.settings(), CLUSTER)
    with pytest.raises(ConfigurationRefused, match="at most"):
        await client.propose(
            configuration(0, servers=" ".join(f"s{number}-{'x' * 5000}" for number in range(20))),
            ALICE,
            PATIENCE_S,
        )
    await client.close()


async def test_a_short_request_gets_past_an_endpoint_that_is_silent(
    shared_etcd: EtcdProcesses,
) -> None:
    """A new client has two seconds to ask for a domain, and a silent endpoint takes a second."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = shared_etcd.client(
            f"127.0.0.1:{silent.getsockname()[1]}",
            *shared_etcd.endpoints,
            cluster=secrets.token_bytes(16),
        )
        assert await client.hint(DEFAULT, HINT_TIMEOUT_S) is None
        await client.close()
