"""Hundreds of files with a domain each: answers to clients that ask for servers or for status."""

import pytest

from ares.cli.observe.domain_survey import outlook_of_files, survey
from ares.model.configuration import Configuration
from ares.model.identity import ServerId
from ares.model.messages import ConfigurationReport
from ares.replica.configuration_state import ConfigurationState

from .inproc_cluster import InprocCluster

pytestmark = pytest.mark.slow

FILES = 300


@pytest.fixture
async def crowded(cluster: InprocCluster) -> InprocCluster:
    manager = cluster.manager()
    for number in range(FILES):
        await manager.file(f"many/{number:03}").write(b"content")
    return cluster


async def test_a_brief_question_for_identities_costs_no_report(
    crowded: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ConfigurationReport] = []
    describe = ConfigurationState.describe

    def counted(self: ConfigurationState) -> ConfigurationReport:
        told.append(describe(self))
        return told[-1]

    monkeypatch.setattr(ConfigurationState, "describe", counted)
    manager = crowded.manager()
    wished = await manager.identified(Configuration.abd(["s0", "s1", "s2"]))
    assert [server.identity for server in wished.servers] == [
        crowded.book[ServerId(name)].identity for name in ("s0", "s1", "s2")
    ]
    assert told == []
    described = (await manager.status()).servers[ServerId("s0")]
    assert described is not None
    assert len(described.hosted) == FILES + 1
    assert len(told) > 2 * FILES


@pytest.mark.parametrize("every", [False, True])
async def test_all_of_them_are_seen_however_they_are_asked_for(
    crowded: InprocCluster, every: bool
) -> None:
    before = crowded.requests
    manager = crowded.manager()
    _, standings = await survey(manager, every)
    assert len(standings) == FILES + 1
    assert (standings[0].domain, standings[1].domain) == ("default", "file/many/000")
    assert (crowded.requests - before < 100) is not every
    assert (
        outlook_of_files(standings[1:])
        == f"{FILES} domains of single files: each survives 1 more crash or more"
    )
    crowded.stop("s0")
    _, standings = await survey(manager, every)
    assert (
        outlook_of_files(standings[1:])
        == f"{FILES} domains of single files: {FILES} of them survive no more crashes"
    )


async def test_files_whose_servers_are_all_silent_are_not_passed_over(
    cluster: InprocCluster,
) -> None:
    manager = cluster.manager(timeout_s=3.0)
    await manager.file("lost", create=Configuration.abd(["s4", "s5", "s6"])).write(b"content")
    cluster.stop("s4", "s5", "s6")
    _, standings = await survey(cluster.manager(timeout_s=3.0), False)
    assert [(standing.domain, standing.serves) for standing in standings] == [
        ("default", True),
        ("file/lost", False),
    ]
    assert (
        outlook_of_files(standings[1:])
        == "1 domain of a single file: 1 of them without a quorum: 'file/lost'"
    )


async def test_the_names_of_all_files(crowded: InprocCluster) -> None:
    assert await crowded.manager().files("many/29") == [
        f"many/{number}" for number in range(290, 300)
    ]
