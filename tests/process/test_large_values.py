"""Values beyond 256 MiB, in a cluster whose file allows them, by processes (docs/limits.md)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.model.identity import VALUE_BYTES_DEFAULT
from ares.model.units import MIB

from .command_line import Cli, running_cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]

ALLOWED = 264 * MIB


@pytest.fixture(params=["native", "libzmq"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cli]:
    words = ("--transport", request.param, "--value-max", "264M")
    yield from running_cluster(tmp_path / "c", *words)


def file_of(path: Path, size: int) -> Path:
    """Make a file with marks at both ends, and zeros between them."""
    with path.open("wb") as file:
        file.write(b"begin")
        file.truncate(size - 3)
        file.seek(0, 2)
        file.write(b"end")
    return path


def test_a_value_is_written_read_moved_and_read_again_after_a_restart(
    cluster: Cli, tmp_path: Path
) -> None:
    value, back = file_of(tmp_path / "value", ALLOWED), tmp_path / "back"
    beyond = file_of(tmp_path / "beyond", ALLOWED + 1)
    assert f"{ALLOWED} bytes that a value may have" in cluster.fails(2, "write", "k", beyond)
    beyond.unlink()
    cluster.ok("write", "k", value)
    cluster.ok("read", "k", "-o", back)
    assert back.read_bytes() == value.read_bytes()
    cluster.ok("reconfig", "--dap", "ec", "--k", "2", "--servers", "s0,s1,s2,s3")
    for id in cluster.settings.servers:
        cluster.kill(id)
    cluster.ok("up", cluster.directory, "--detach")
    cluster.ok("read", "k", "-o", back)
    assert back.read_bytes() == value.read_bytes()
    cluster.ok("scrub")


def test_clients_with_other_files_read_it_and_learn_the_limit(cluster: Cli, tmp_path: Path) -> None:
    """A client whose file has a lower limit reads; a higher limit does not reach the servers."""
    value = file_of(tmp_path / "value", VALUE_BYTES_DEFAULT + 1)
    cluster.ok("write", "k", value)
    text = cluster.settings.path.read_text()
    line = f"value_bytes = {ALLOWED}\n"
    assert line in text
    lower, higher = cluster.directory / "lower.toml", cluster.directory / "higher.toml"
    lower.write_text(text.replace(line, ""))
    higher.write_text(text.replace(line, f"value_bytes = {ALLOWED + MIB}\n"))
    assert f"{VALUE_BYTES_DEFAULT} bytes that" in cluster.fails(2, "-c", lower, "write", "k", value)
    back = tmp_path / "back"
    cluster.ok("-c", lower, "read", "k", "-o", back)
    assert back.read_bytes() == value.read_bytes()
    beyond = file_of(tmp_path / "beyond", ALLOWED + MIB)
    told = cluster.run("-c", higher, "--timeout", "20", "write", "k", beyond).stderr.decode()
    assert told.startswith("error: 0 of the 3 servers needed answered while write of 'k'")
    limit = f"allows {ALLOWED} (value_bytes under [limits])"
    assert (limit in told) == (cluster.settings.transport == "native")
    cluster.ok("-c", higher, "--timeout", "5", "write", "small", lower)
    assert cluster.ok("read", "small") == lower.read_bytes()
    cluster.ok("read", "k", "-o", back)
    assert back.read_bytes() == value.read_bytes()
