"""Certificates: their contents and issuers; a configuration's id does not depend on them."""

import hashlib

import msgspec
import pytest
from msgspec.structs import replace

from ares.consensus.certified import CertifiedConsensus
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration, Server
from ares.model.errors import ConfigurationRefused
from ares.model.identity import DEFAULT_DOMAIN, ClientId, DomainName, ServerId
from ares.security import certificates
from ares.security.certificates import Signer, Verifier
from ares.security.keys import SigningKey

ME = ClientId(7)
FILES = DomainName("files")
SERVERS = [Server(ServerId(f"s{number}"), f"h:{number}", f"{number:032x}") for number in range(3)]
C0 = Configuration.abd(SERVERS).at(DEFAULT_DOMAIN, 0)
KEY = SigningKey.generate()
VERIFIER = Verifier(KEY.public, C0)
C1 = Configuration.ec(SERVERS, 1).at(DEFAULT_DOMAIN, 1, C0.id)


def certified(configuration: Configuration, key: SigningKey = KEY) -> Configuration:
    return Signer(key).certified(configuration)


def test_what_was_signed_is_believed() -> None:
    assert VERIFIER(certified(C1))
    assert VERIFIER(certified(C1))
    assert VERIFIER(certified(Configuration.abd(SERVERS).at(FILES, 0, C0.id)))


def test_c0_needs_no_certificate() -> None:
    assert VERIFIER(C0)
    assert not VERIFIER(Configuration.abd(SERVERS[::-1]).at(DEFAULT_DOMAIN, 0))


def refused() -> dict[str, Configuration]:
    good = certified(C1)
    elsewhere = Configuration.ec(SERVERS, 1).at(DEFAULT_DOMAIN, 1, bytes(16))
    return {
        "no certificate": C1,
        "garbage": replace(C1, certificate=bytes(64)),
        "of no length that a signature has": replace(C1, certificate=b"x"),
        "cut short": replace(C1, certificate=good.certificate[:-1]),
        "one bit flipped": replace(
            C1, certificate=bytes([good.certificate[0] ^ 1]) + good.certificate[1:]
        ),
        "by another key": certified(C1, SigningKey.generate()),
        "of another index": replace(C1, index=2, certificate=good.certificate),
        "of another domain": replace(C1, domain=FILES, certificate=good.certificate),
        "of another content": replace(C1, servers=C1.servers[::-1], certificate=good.certificate),
        "of another address": replace(
            C1,
            servers=(replace(C1.servers[0], address="evil:1"), *C1.servers[1:]),
            certificate=good.certificate,
        ),
        "of another cluster": certified(elsewhere),
        "moved to this cluster": replace(
            elsewhere, cluster=C0.id, certificate=certified(elsewhere).certificate
        ),
        "without a place": replace(C1, index=-1, certificate=good.certificate),
    }


@pytest.mark.parametrize("how", refused())
def test_what_was_not_signed_is_not_believed(how: str) -> None:
    certified(C1)
    assert VERIFIER(certified(C1))  # remembered, and no help to the other servers
    assert not VERIFIER(refused()[how])


def test_without_consensus_members_nothing_was_ever_decided() -> None:
    nobody = Verifier("", C0)
    assert nobody(C0)
    assert not nobody(certified(C1))


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "VERIFIED_KEPT", 10)
    verifier = Verifier(KEY.public, C0)
    for index in range(1, 40):
        assert verifier(certified(C1.at(DEFAULT_DOMAIN, index, C0.id)))
    assert len(verifier._verified) == 10


def test_a_certificate_is_no_part_of_the_id_or_the_content() -> None:
    with_it = certified(C1)
    assert with_it.certificate
    assert with_it.id == C1.id
    assert with_it.same_content(C1)
    assert with_it.at(FILES, 3, C0.id).certificate == b""


class Published(msgspec.Struct, frozen=True, array_like=True):
    """A configuration as known to a release without certificates."""

    dap: str
    servers: tuple[Server, ...]
    k: int = 1
    delta: int = 0
    backend: str = ""
    domain: str = DEFAULT_DOMAIN
    index: int = -1
    cluster: bytes = b""


@pytest.mark.parametrize("configuration", [C0, C1])
def test_ids_are_what_they_were_and_both_releases_read_each_other(
    configuration: Configuration,
) -> None:
    encoded = msgspec.msgpack.encode(configuration)
    earlier = msgspec.msgpack.decode(encoded, type=Published)
    assert (
        hashlib.blake2b(msgspec.msgpack.encode(earlier), digest_size=16).digest()
        == configuration.id
    )
    assert (
        msgspec.msgpack.decode(msgspec.msgpack.encode(earlier), type=Configuration) == configuration
    )
    assert len(encoded) == len(msgspec.msgpack.encode(earlier)) + 3, (
        "no certificate (two bytes), and no start of a chain"
    )


def test_ids_of_an_earlier_release() -> None:
    first = Configuration.abd(
        [Server(f"s{i}", f"h:{i + 1}", two * 16) for i, two in enumerate(("ab", "cd", "ef"))]
    ).at("default", 0)  # type: ignore[arg-type]
    assert first.id.hex() == "dc4355a2697069f38a8e6c43de9bd2ba"
    later = Configuration.ec(["s0", "s1", "s2", "s3", "s4"], k=3).at(
        DomainName("photos"), 4, first.id
    )
    assert later.id.hex() == "47370773235823e51c27ecd9e7d7e850"


# -- the signing members ---------------------------------------------------------------------------


@pytest.fixture
def table() -> LocalConsensus:
    return LocalConsensus()


@pytest.fixture
def member(table: LocalConsensus) -> CertifiedConsensus:
    return CertifiedConsensus(table, C0, Signer(KEY), VERIFIER)


async def test_a_decision_is_signed_whosever_it_was(
    member: CertifiedConsensus, table: LocalConsensus
) -> None:
    first = await member.propose(C1, ME, 1)
    late = await member.propose(Configuration.abd(SERVERS).at(DEFAULT_DOMAIN, 1, C0.id), ME, 1)
    assert first == late
    assert VERIFIER(first.configuration)
    assert (
        await table.propose(C1, ME, 1)
    ).configuration.certificate == b""  # only the decision is replicated


async def test_what_a_proposer_calls_a_certificate_is_not_handed_on(
    member: CertifiedConsensus,
) -> None:
    decided = await member.propose(replace(C1, certificate=b"x" * 64), ME, 1)
    assert decided.configuration == certified(C1)


@pytest.mark.parametrize(
    "proposal",
    [
        C0,
        Configuration.abd(SERVERS[:2] + SERVERS[2:]).at(DEFAULT_DOMAIN, 0, C0.id),
        C1.at(FILES, 0, bytes(16)),
    ],
)
async def test_nothing_of_another_cluster_and_no_second_c0_is_signed(
    member: CertifiedConsensus, proposal: Configuration
) -> None:
    with pytest.raises(ConfigurationRefused):
        await member.propose(proposal, ME, 1)


@pytest.mark.parametrize("domain", [DEFAULT_DOMAIN, FILES])
@pytest.mark.parametrize("moved", [False, True])
async def test_no_chain_is_decided_for_a_domain_of_objects(
    member: CertifiedConsensus, table: LocalConsensus, domain: DomainName, moved: bool
) -> None:
    """Such a proposal, past the client's own check, would have stopped the domain."""
    if moved:
        await table.tell_finalized(Configuration.abd(SERVERS).at(domain, 1, C0.id), 1)
    with pytest.raises(ConfigurationRefused, match="no chain is decided"):
        await member.propose(Configuration.chain(SERVERS).at(domain, 2, C0.id), ME, 1)
    decided = await member.propose(Configuration.abd(SERVERS).at(domain, 2, C0.id), ME, 1)
    assert decided.configuration.dap == "abd", "nothing was decided before"


async def test_a_log_stays_a_log(member: CertifiedConsensus, table: LocalConsensus) -> None:
    chain = Configuration.chain(SERVERS)
    first = (await member.propose(chain.at(FILES, 0, C0.id), ME, 1)).configuration
    with pytest.raises(ConfigurationRefused, match="not known as a log"):
        await member.propose(chain.at(FILES, 1, C0.id), ME, 1)
    await member.tell_finalized(first, 1)
    with pytest.raises(ConfigurationRefused, match="is a log, and only chains follow"):
        await member.propose(Configuration.abd(SERVERS).at(FILES, 1, C0.id), ME, 1)
    assert (await member.propose(chain.at(FILES, 1, C0.id), ME, 1)).configuration.dap == "chain"
    with pytest.raises(ConfigurationRefused, match="no chain is decided"):
        await member.propose(chain.at(DEFAULT_DOMAIN, 1, C0.id), ME, 1)


async def test_what_was_decided_for_another_cluster_is_not_signed(
    member: CertifiedConsensus, table: LocalConsensus
) -> None:
    """The member's journal may be older than its keys."""
    await table.propose(C1.at(DEFAULT_DOMAIN, 1, bytes(16)), ME, 1)
    with pytest.raises(ConfigurationRefused, match="another cluster"):
        await member.propose(C1, ME, 1)


async def test_hints_are_certified(member: CertifiedConsensus, table: LocalConsensus) -> None:
    with pytest.raises(ConfigurationRefused, match="certificate"):
        await member.tell_finalized(C1, 1)
    await table.tell_finalized(C1, 1)
    assert await member.hint(DEFAULT_DOMAIN, 1) is None
    await table.tell_finalized(certified(C1.at(DEFAULT_DOMAIN, 2, C0.id)), 1)
    told = await member.hint(DEFAULT_DOMAIN, 1)
    assert told is not None
    assert VERIFIER(told)
