"""Raft members in this process: refusals, damaged files, and the traps of PySyncObj."""

import asyncio
import logging
import shutil
import socket
from pathlib import Path

import pytest
from pysyncobj.syncobj import _RAFT_STATE

from ares.cluster.home import prepare
from ares.consensus.member_host import ConsensusHost, MemberParts, run_consensus_member
from ares.consensus.raft.directory import MemberDirectory
from ares.consensus.raft.member import RaftMember
from ares.consensus.raft.replicated import ReplicatedTable
from ares.model.errors import BadInput, ConfigurationRefused, ConsensusUnavailable, StoreFailed
from ares.model.identity import ClientId, DomainName, ServerId
from ares.net.libzmq import ZmqListener

from ..ports import free_addresses
from .clusters import MEMBERS, PASSWORD, PATIENCE_S, LocalMembers, configuration, until

ME, OTHER = ClientId(1), ClientId(2)
R0, R1, R2 = MEMBERS


async def propose_many(member: RaftMember, indices: range) -> None:
    await asyncio.gather(
        *(member.propose(configuration(index), ME, PATIENCE_S) for index in indices)
    )


async def check_decided(member: RaftMember, indices: range) -> None:
    """Check that every proposer gets the proposals of ME."""
    rivals = [configuration(index, servers="x0 x1 x2") for index in indices]
    decided = await asyncio.gather(*(member.propose(rival, OTHER, PATIENCE_S) for rival in rivals))
    assert [(each.configuration, each.proposer) for each in decided] == [
        (configuration(index), ME) for index in indices
    ]


async def decisions(member: RaftMember) -> int:
    return (await member.describe(1.0))[0].decisions


async def compact(member: RaftMember, directory: Path) -> None:
    assert member._machine is not None
    entries = member._machine._getRaftLogSize()
    member._machine.forceLogCompaction()
    await until(
        lambda: (
            (directory / "dump").exists()
            and member._machine is not None
            and member._machine._getRaftLogSize() < entries
        )
    )


def test_an_empty_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="password"):
        RaftMember(R0, {R0: "127.0.0.1:1"}, tmp_path, "")


@pytest.mark.parametrize(
    ("addresses", "what"),
    [
        ({R1: "127.0.0.1:1"}, "r0 is not among"),
        ({R0: "127.0.0.1:1", R1: "127.0.0.1:1"}, "share an address"),
        ({R0: "127.0.0.1"}, "address of consensus member r0"),
        ({R0: "127.0.0.1:1", R1: "[::1]:2"}, "address of consensus member r1"),
    ],
)
def test_impossible_addresses_are_refused(
    tmp_path: Path, addresses: dict[ServerId, str], what: str
) -> None:
    with pytest.raises(BadInput, match=what):
        RaftMember(R0, addresses, tmp_path, PASSWORD)


async def test_an_address_in_use_is_refused_and_the_directory_let_go(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        prepare(tmp_path)
        member = RaftMember(R0, {R0: f"127.0.0.1:{taken.getsockname()[1]}"}, tmp_path, PASSWORD)
        with pytest.raises(BadInput, match="cannot listen"):
            member.start()
    member.start()
    await member.close()


async def test_only_the_given_interface_is_bound(single: LocalMembers) -> None:
    await single.start_all()
    port = int(single.raft_addresses[R0].rpartition(":")[2])
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.2", port))  # fails if the member listens on every interface
        elsewhere.listen()


async def test_a_directory_has_one_process_and_one_member(single: LocalMembers) -> None:
    await single.start_all()
    with pytest.raises(BadInput, match="in use by another process"):
        single.make(R0).start()
    await single.stop_all()
    stranger = RaftMember(R1, {R1: free_addresses(1)[0]}, single.directory(R0), PASSWORD)
    with pytest.raises(BadInput, match="belongs to consensus member r0"):
        stranger.start()


async def test_an_oversized_description_is_refused(single: LocalMembers) -> None:
    member = await single.start(R0)
    with pytest.raises(ConfigurationRefused, match="at most"):
        await member.propose(
            configuration(0, servers=" ".join(f"s{number}-{'x' * 5000}" for number in range(20))),
            ME,
            PATIENCE_S,
        )


async def test_before_start_and_after_close_it_is_unavailable(single: LocalMembers) -> None:
    member = single.make(R0)
    with pytest.raises(ConsensusUnavailable, match="not running"):
        await member.propose(configuration(0), ME, 1.0)
    member.start()
    await member.close()
    await member.close()
    with pytest.raises(ConsensusUnavailable, match="not running"):
        await member.hint(DomainName("default"), 1.0)


async def test_members_with_another_password_are_not_heard(members: LocalMembers) -> None:
    raft = await members.start(R0)
    stranger = RaftMember(R1, members.raft_addresses, members.directory(R1), "another password")
    stranger.start()
    try:
        with pytest.raises(ConsensusUnavailable):
            await raft.propose(configuration(0), ME, 3.0)
    finally:
        await stranger.close()


@pytest.mark.slow
async def test_many_at_once_rewrite_no_applied_entry(
    members: LocalMembers, caplog: pytest.LogCaptureFixture
) -> None:
    """PySyncObj alone cuts a follower's log back while the leader repeats entries.

    PySyncObj logs this.
    """
    await members.start_all()
    with caplog.at_level(logging.CRITICAL, "pysyncobj"):
        await propose_many(members.running[R1], range(600))
    assert caplog.records == []
    await check_decided(members.running[R2], range(600))


async def test_a_restarted_member_keeps_decisions_and_hint(single: LocalMembers) -> None:
    member = await single.start(R0)
    await propose_many(member, range(20))
    await member.tell_finalized(configuration(19), PATIENCE_S)
    await single.stop(R0)
    member = await single.start(R0)
    await check_decided(member, range(20))
    assert await member.hint(DomainName("default"), PATIENCE_S) == configuration(19)


async def test_a_compacted_member_keeps_decisions_and_hint(single: LocalMembers) -> None:
    member = await single.start(R0)
    await propose_many(member, range(20))
    await member.tell_finalized(configuration(19), PATIENCE_S)
    await compact(member, single.directory(R0))
    await propose_many(member, range(20, 30))
    await single.stop(R0)
    member = await single.start(R0)
    await check_decided(member, range(30))
    assert await member.hint(DomainName("default"), PATIENCE_S) == configuration(19)


async def test_a_crash_between_dump_and_cut_forgets_nothing(
    single: LocalMembers, tmp_path: Path
) -> None:
    """A dump beside the whole journal is the state after such a crash.

    Both are from the same run; entries of another run may have other numbers.
    """
    directory, whole = single.directory(R0), tmp_path / "whole"
    await propose_many(await single.start(R0), range(10))
    shutil.copytree(directory, whole)
    await compact(single.running[R0], directory)
    await single.stop(R0)
    shutil.copy(directory / "dump", whole / "dump")
    shutil.rmtree(directory)
    shutil.copytree(whole, directory)
    await propose_many(await single.start(R0), range(20))
    await single.stop(R0)
    member = await single.start(R0)
    await check_decided(member, range(20))
    assert await decisions(member) == 20


async def test_a_member_that_missed_a_compaction_gets_the_dump(members: LocalMembers) -> None:
    await members.start_all()
    await propose_many(members.running[R0], range(5))
    await members.stop(R2)
    await propose_many(members.running[R0], range(5, 50))
    for member in (R0, R1):
        await compact(members.running[member], members.directory(member))
    late = await members.start(R2)
    await check_decided(late, range(50))
    assert (members.directory(R2) / "dump").exists()
    await members.stop_all()
    await members.start(R2)
    await members.start(R1)
    await check_decided(members.running[R2], range(50))


@pytest.mark.parametrize(
    "damage", ["dump flipped", "dump gone", "journal empty", "journal gone", "votes gone"]
)
async def test_damaged_files_are_refused_not_taken_for_empty_ones(
    single: LocalMembers, damage: str
) -> None:
    member = await single.start(R0)
    await propose_many(member, range(10))
    directory = single.directory(R0)
    await compact(member, directory)
    await single.stop(R0)
    match damage.split():
        case ["dump", "flipped"]:
            content = bytearray((directory / "dump").read_bytes())
            content[-1] ^= 1
            (directory / "dump").write_bytes(content)
        case ["journal", "empty"]:
            (directory / "journal").write_bytes(b"")
        case [name, _]:
            (directory / {"votes": "journal.meta"}.get(name, name)).unlink()
    for _ in range(2):  # a refusal changes no state
        with pytest.raises(BadInput, match="damaged"):
            single.make(R0).start()


@pytest.mark.parametrize("sync", ["sync_journal", "sync_votes"])
async def test_nothing_is_promised_that_the_disk_does_not_have(
    members: LocalMembers, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    def fail(_: MemberDirectory) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr(MemberDirectory, sync, fail)
    await members.start_all()
    with pytest.raises(ConsensusUnavailable):
        await asyncio.gather(
            *(raft.propose(configuration(0), ME, 4.0) for raft in members.running.values())
        )
    stopped = [
        raft
        for raft in members.running.values()
        if raft._machine is not None and not raft._machine.tick_thread_alive()
    ]
    assert stopped
    with pytest.raises(ConsensusUnavailable, match="its disk failed"):
        await stopped[0].propose(configuration(0), ME, 1.0)


async def test_a_member_process_ends_when_the_thread_of_raft_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ares.consensus.member_host.RAFT_LOOK_S", 0.01)
    [address] = free_addresses(1)
    listener = ZmqListener("127.0.0.1:0")
    prepare(tmp_path)

    def serving(host: ConsensusHost) -> None:
        monkeypatch.setattr(ReplicatedTable, "tick_thread_alive", lambda machine: False)

    async with asyncio.timeout(60):
        with pytest.raises(StoreFailed, match="thread has ended"):
            await run_consensus_member(
                RaftMember(R0, {R0: address}, tmp_path, "word", 0.1),
                MemberParts(listener, asyncio.Event(), serving=serving),
            )


async def test_an_acknowledgement_of_an_earlier_term_does_not_count(single: LocalMembers) -> None:
    member = await single.start(R0)
    await member.propose(configuration(0), ME, PATIENCE_S)
    assert member._machine is not None
    acknowledgement = {
        "type": "next_node_idx",
        "next_node_idx": 9,
        "success": True,
        "reset": False,
        "sender_term": member._machine._getTerm(),
    }
    assert member._machine.admitted(R1, acknowledgement) == acknowledgement
    assert (
        member._machine.admitted(
            R1, {**acknowledgement, "sender_term": acknowledgement["sender_term"] - 1}
        )
        is None
    )


async def test_the_vote_of_a_member_counts_once_in_a_term(tmp_path: Path) -> None:
    """The transport may pass any message: of five, a candidate with two votes is no leader.

    The two votes are the candidate's own and another member's.
    """
    addresses = dict(
        zip([*MEMBERS, ServerId("r3"), ServerId("r4")], free_addresses(5), strict=True)
    )
    prepare(tmp_path)
    member = RaftMember(R0, addresses, tmp_path, PASSWORD)
    member.start()
    machine = member._machine
    assert machine is not None
    term = machine._getTerm()
    voters = sorted(machine.otherNodes, key=lambda node: str(node.id))
    machine._SyncObj__raftState, machine._SyncObj__votesCount = _RAFT_STATE.CANDIDATE, 1
    transport = machine._SyncObj__transport
    for voter in voters[:2]:
        transport._onNodeConnected(voter)
    for voter, vote_term in [
        (0, term),
        (0, term),
        (0, term - 1),
        (0, term),
        (0, term + 1),
        (0, term),
    ]:
        transport._onMessageReceived(
            voters[voter], {"type": "response_vote", "term": vote_term, "sender_term": vote_term}
        )
        assert not machine._isLeader()
    transport._onMessageReceived(
        voters[1], {"type": "response_vote", "term": term, "sender_term": term}
    )
    assert machine._isLeader()
    await member.close()
