"""Format numbers of all stored and sent data: a newer number is refused, in words."""

import os
import re
from pathlib import Path

import msgspec
import pytest

from ares.client import local_copy as remembered
from ares.cluster import tables as cluster_tables
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.consensus.raft import directory as raft_directory
from ares.consensus.raft.directory import Dump, MemberDirectory
from ares.fragment import block
from ares.model import codec
from ares.model.decision import DecisionTable
from ares.model.errors import BadBlock, BadInput, BadMessage, ForeignStore
from ares.model.identity import ServerId
from ares.model.messages import ReadConfig
from ares.security.clients_file import read_clients
from ares.store.journal import format as journal_format
from tests.journal.journal_node import Node, log_journal, put

ENTRY = (b"command", 1, 1)


def test_messages_of_a_newer_format_are_refused():
    header, *rest = codec.encode([ReadConfig(1, b"c")])
    newer = bytes([codec.WIRE_VERSION + 1]) + header[1:]
    with pytest.raises(
        BadMessage,
        match=f"message format {codec.WIRE_VERSION + 1}, and this program speaks "
        f"{codec.WIRE_VERSION}: use the same release",
    ):
        codec.decode([newer, *rest])


def test_a_journal_of_a_newer_format_is_kept_and_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "ares.store.journal.segment_journal.JOURNAL_FORMAT", journal_format.JOURNAL_FORMAT + 1
    )
    node = Node(log_journal(tmp_path / "j"))
    assert node.handle(put("a", 1, b"x")) is not None
    node.commit()
    node.journal.close()
    kept = {path.name: path.read_bytes() for path in (tmp_path / "j").iterdir()}
    with pytest.raises(
        ForeignStore,
        match="format 2 and this release knows 1: use the release that wrote it, or a newer one",
    ):
        Node(log_journal(tmp_path / "j"))
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "j").iterdir() if path.name in kept
    } == kept


def cluster(directory: Path, **more) -> Settings:
    return create(directory, InitPlan(servers=3, consensus=1, base_port=0, **more))


def test_a_cluster_file_of_a_newer_format_is_refused(tmp_path):
    path = cluster(tmp_path / "c").path
    text = path.read_text().replace(
        f"format = {cluster_tables.CLUSTER_FORMAT}", f"format = {cluster_tables.CLUSTER_FORMAT + 1}"
    )
    path.write_text(text.replace("[initial]", "[initial]\nsomething_new = 1"))
    with pytest.raises(
        BadInput,
        match=r"cluster\.toml: format: expected 1, found 2: the file was written for a newer "
        r"release of ares",
    ):
        Settings.load(path)


def test_the_list_of_clients(tmp_path):
    security = cluster(tmp_path / "c", security="curve").security
    assert security is not None
    path = security.clients_path
    assert read_clients(path)
    path.write_text(path.read_text().replace("format = 1", "format = 2\nsomething_new = 1"))
    with pytest.raises(BadInput, match=re.escape(f"{path}: format: expected 1, found 2")):
        read_clients(path)


def test_a_list_of_clients_from_before_it_had_a_format(tmp_path):
    security = cluster(tmp_path / "c", security="curve").security
    assert security is not None
    path = security.clients_path
    path.write_text(path.read_text().replace("format = 1\n", ""))
    assert [client.name for client in read_clients(path)] == ["admin"]


def test_a_secret_key_of_another_form_is_refused(tmp_path):
    """The form of a key is its format: 64 hexadecimal digits."""
    settings = cluster(tmp_path / "c", security="curve")
    assert settings.security is not None
    path = settings.security.directory / "s0.secret"
    os.chmod(path, 0o600)
    path.write_text("2:" + path.read_text())
    server = settings.servers[ServerId("s0")]
    with pytest.raises(BadInput, match=r"s0\.secret") as refused:
        settings.security.process_key("s0", server.public_key)
    assert path.read_text().strip()[2:] not in str(refused.value)


def test_the_directory_of_a_consensus_member(tmp_path):
    directory = MemberDirectory(tmp_path / "r0")
    directory.lock(ServerId("r0"))
    directory.unlock()
    assert directory.format.read_text() == f"{raft_directory.RAFT_FORMAT}\n"
    directory.format.write_text("2\n")
    with pytest.raises(
        BadInput,
        match="it has format '2', and this release knows 1: use the release that wrote it, or a "
        "newer one; nothing was",
    ):
        directory.lock(ServerId("r0"))
    directory.format.write_text("1\n")
    directory.lock(ServerId("r0"))


def test_the_directory_of_a_consensus_member_from_before_it_had_a_format(tmp_path):
    directory = MemberDirectory(tmp_path / "r0")
    directory.lock(ServerId("r0"))
    directory.unlock()
    for text in (None, ""):
        directory.format.unlink()
        if text is not None:
            directory.format.write_text(text)
        directory.lock(ServerId("r0"))
        directory.unlock()
        assert directory.format.read_text() == "1\n"


def test_the_dump_of_a_consensus_member(tmp_path, monkeypatch):
    directory = MemberDirectory(tmp_path)
    dump = Dump(DecisionTable(), ENTRY, ENTRY)
    directory.write_dump(directory.dump, dump)
    assert directory.read_dump().last == ENTRY
    with monkeypatch.context() as newer:
        newer.setattr(raft_directory, "RAFT_FORMAT", 2)
        directory.write_dump(directory.dump, dump)
    with pytest.raises(
        BadInput,
        match="has format 2, and this release knows 1: use the same release of ares at every "
        "member",
    ):
        directory.read_dump()
    body = msgspec.msgpack.encode(dump)
    directory.dump.write_bytes(raft_directory._digest(body) + body)
    with pytest.raises(BadInput, match="is damaged"):
        directory.read_dump()


def test_a_block_of_a_file():
    for decode, latest in ((block.decode_block, 1), (block.decode_genesis, 2)):
        with pytest.raises(
            BadBlock,
            match=f"format {latest + 1}, and this program reads up to {latest}: use a newer "
            "release of ares",
        ):
            decode(bytes([latest + 1]) + b"anything", "f")


def test_what_a_copy_was_made_from(tmp_path, caplog):
    """A newer entry is skipped with a notice: no data is lost."""
    copy = remembered.LocalName(b"c", "d", "f", b"/x")
    path = remembered._entry_path(tmp_path, copy)
    path.write_bytes(bytes([remembered.CHUNKED_REMEMBERED_FORMAT + 1]) + b"anything")
    assert remembered.RememberedBases(tmp_path).recall(copy) is None
    assert "is not an entry of this release and is ignored" in caplog.text
    assert path.exists()
