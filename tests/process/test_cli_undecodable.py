"""An undecodable object by a hostile writer, against real processes.

`reconfig` leaves the object behind, and `status` lists it.
"""

import asyncio
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ares
from ares.engine.effects import Gather
from ares.model.element import sealed
from ares.model.errors import ElementRefused
from ares.model.identity import ClientId, ObjectName
from ares.model.messages import PutData
from ares.model.tag import Tag, number_max

from .command_line import Cli, running_cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]

HOSTILE = ClientId(77)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    yield from running_cluster(tmp_path / "cluster", "--dap", "ec", "--k", "2", "--delta", "1")


def hostile(cli: Cli, name: str, numbers: list[int], lie: bool = False) -> None:
    """Put elements by hand, a version with each of these numbers.

    With ``lie``, the elements do not decode together.
    """

    async def put() -> None:
        async with ares.connect(cli.settings.path) as store:
            for number in numbers:
                await store.run(
                    lambda view, number=number: _put(
                        view.sequence.last_known, name, Tag(number, HOSTILE), lie
                    ),
                    "put",
                )

    asyncio.run(put())


def _put(configuration, name, tag, lie):
    size = lambda index: 90 + index * lie  # noqa: E731
    elements = [
        sealed(configuration.id, name, tag, index, 100, (bytes(size(index)),))
        for index in range(configuration.n)
    ]
    yield Gather(
        configuration,
        lambda call: [
            PutData(call, configuration.id, ObjectName(name), tag, element) for element in elements
        ],
        "put-data",
        needed=configuration.n,
    )


def test_left_behind_and_listed_after_a_restart_until_it_is_written(cli: Cli) -> None:
    cli.ok("write", "good", stdin=b"value")
    cli.ok("write", "bad", stdin=b"value")
    hostile(cli, "bad", [1000], lie=True)
    assert "no version of 'bad' can be decoded" in cli.fails(1, "read", "bad")
    assert cli.ok("ls") == b"bad\ngood\n"
    wished = ("--dap", "abd", "--servers", "s1,s2,s3")
    failed = cli.run("reconfig", *wished)
    assert failed.returncode == 1
    message = failed.stderr.decode()
    assert "1 objects of domain 'default' cannot be moved" in message
    assert "nothing was lost" in message
    assert "'bad': the elements of s" in message
    assert "--skip-undecodable" in message
    assert cli.ok("read", "good") == b"value"
    assert cli.json("status")["domains"][0]["left_behind"] == []
    done = cli.json("reconfig", *wished, "--skip-undecodable")["domains"][0]
    assert (done["left_behind"], done["after"]["servers"]) == (["bad"], ["s1", "s2", "s3"])
    cli.ok("down", cli.directory)
    cli.ok("up", cli.directory, "--detach")
    assert cli.json("status")["domains"][0]["left_behind"] == ["bad"]
    assert "left behind undecodable, until written or deleted: 'bad'" in cli.ok("status").decode()
    assert "'bad' could not be decoded when its domain was moved, and was left behind" in cli.fails(
        1, "read", "bad"
    )
    assert cli.ok("read", "good") == b"value"
    cli.ok("write", "bad", stdin=b"new")
    assert cli.ok("read", "bad") == b"new"
    assert cli.json("status")["domains"][0]["left_behind"] == []


def test_what_no_client_names_is_deleted_as_the_failed_move_says(cli: Cli) -> None:
    """An earlier release took such a name from any writer."""
    name = "\0it's mine"
    hostile(cli, name, [1000], lie=True)
    wished = ("--dap", "abd", "--servers", "s1,s2,s3")
    message = cli.run("reconfig", *wished).stderr.decode()
    advised = " ".join(message.partition("`ares-cli ")[2].partition("`")[0].split())
    assert shlex.split(advised) == ["delete", "--raw", "--domain", "default", r"\x00it's mine"]
    cli.fails(2, "delete", r"\x00it's min\x", "--raw")
    cli.ok(*shlex.split(advised))
    cli.ok("reconfig", *wished)


def test_the_highest_accepted_tag_is_exceeded_by_the_next_write(cli: Cli) -> None:
    for number in (2**63, 2**53, number_max(time.time() + 60)):
        with pytest.raises(ElementRefused, match="which no sequence of writes reaches"):
            hostile(cli, "k", [number])
    hostile(cli, "k", [number_max(time.time())])
    cli.ok("write", "k", stdin=b"mine")
    assert cli.ok("read", "k") == b"mine"
    cli.ok("reconfig", "--dap", "abd", "--servers", "s1,s2,s3")
    cli.ok("delete", "k")
    assert cli.ok("ls") == b""
