"""The demo: a true story, no remains, and traffic that detects a faulty store."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from ares.cli.demo import demo_race, demo_story
from ares.cli.demo.demo_traffic import DemoTraffic, count_in, value_of
from ares.cli.main import run
from ares.model.errors import Unavailable
from ares.platform.environment import TRANSPORT_VARIABLE
from ares.platform.interpreter import python

DEMO = python("-m", "ares", "demo", "--mib", "1")


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False


@pytest.mark.process
def test_the_whole_story(tmp_path: Path) -> None:
    work, cache = tmp_path / "work", tmp_path / "cache"
    work.mkdir()
    environment = os.environ | {"ARES_CACHE": str(cache)}
    done = subprocess.run(
        [*DEMO, "--json", "--dir", work],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert all(step["ok"] for step in report["steps"])
    assert report["steps"][0]["transport"] == os.environ.get(TRANSPORT_VARIABLE, "native")
    assert (report["ok"], report["failures"]) == (True, 0)
    moves = [step for step in report["steps"] if "moved" in step]
    assert [move["configuration"].split(";")[0] for move in moves] == [
        "EC n=4 k=2 delta=8 on s1,s2,s3,s4",
        "ABD n=3 on s2,s3,s4",
    ]
    assert all(move["moved"] >= demo_story.SMALL_OBJECTS for move in moves)
    leader = moves[1]["killed"]
    assert report["crashes_survived"] == ["s0", leader, demo_story.EVERYBODY, demo_race.RACE_KILLED]
    [back] = [
        step
        for step in report["steps"]
        if "objects" in step and step["step"].startswith("start s0 again")
    ]
    assert back["objects"] >= demo_story.SMALL_OBJECTS
    [everybody] = [
        step for step in report["steps"] if step["step"].startswith("kill -9 every server")
    ]
    assert len(everybody["killed"]) == 8
    assert report["steps"][-2]["losers"] == demo_race.RACE_KEYS * (demo_race.RACE_PUTTERS - 1)
    assert moves[1]["leader"] != leader
    assert moves[1]["leader_term"] > moves[1]["term"]
    assert report["operations"] == sum(
        phase[kind]["count"] for phase in report["phases"] for kind in ("reads", "writes")
    )
    assert all(phase["reads"]["count"] and phase["writes"]["count"] for phase in report["phases"])
    assert list(work.iterdir()) == []
    assert report["trace"] == str(cache / "demo.spans")
    shown = subprocess.run(
        python("-m", "ares", "trace", report["trace"]), capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith("read ")
    assert "made the quorum of" in shown
    assert not any(runs(pid) for pid in report["steps"][0]["pids"].values())


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    command = python("-u", *DEMO[1:], "--dir", tmp_path)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        assert "start 5 storage servers" in demo.stdout.readline()
        pids = [int(word.split("=")[1]) for word in demo.stdout.readline().split() if "=" in word]
        assert len(pids) == 8
        assert all(runs(pid) for pid in pids)
        demo.send_signal(number)
        out, err = demo.communicate(timeout=120)
    assert demo.returncode == 130
    assert "stop every process" in out
    assert "Traceback" not in err
    assert not any(runs(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.process
def test_a_step_that_fails_fails_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Negative control: digests that cannot be equal."""
    monkeypatch.setattr(demo_story, "_digest", lambda value: str(id(value)) + os.urandom(8).hex())
    assert run(["demo", "--mib", "1", "--dir", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert "files/random" in report["error"]
    assert [step["ok"] for step in report["steps"]] == [True, True, True, False, True]
    assert list(tmp_path.iterdir()) == []
    assert not any(runs(pid) for pid in report["steps"][0]["pids"].values())


class Memory:
    """A store without faults; each subclass has a fault after some reads."""

    def __init__(self) -> None:
        self.values: dict[str, list[bytes]] = {}
        self.reads = 0
        self.enough = asyncio.Event()

    async def write(self, key: str, value: bytes) -> object:
        await asyncio.sleep(0)
        self.values.setdefault(key, []).append(value)
        return object()

    async def read(self, key: str) -> bytes:
        await asyncio.sleep(0)
        self.reads += 1
        if self.reads == 80:
            self.enough.set()
        return self.wrong(key) if self.reads > 40 else self.values[key][-1]

    def wrong(self, key: str) -> bytes:
        return self.values[key][-1]


class Stale(Memory):
    def wrong(self, key: str) -> bytes:
        return self.values[key][0]


class Torn(Memory):
    def wrong(self, key: str) -> bytes:
        return self.values[key][-1][:-1] + b"?"


class Mixed(Memory):
    def wrong(self, key: str) -> bytes:
        return value_of("traffic/other", 1)


class Early(Memory):
    def wrong(self, key: str) -> bytes:
        return value_of(key, 10**6)


class Failing(Memory):
    def wrong(self, key: str) -> bytes:
        raise Unavailable(2, 1, {})


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (Memory, None),
        (Stale, "returned its write 1, not one from"),
        (Torn, "bytes that no write"),
        (Mixed, "bytes that no write"),
        (Early, "returned its write 1000000"),
        (Failing, "a read failed: 1 of the 2 servers"),
    ],
)
async def test_the_traffic_notices_a_store_that_errs(
    store: type[Memory], words: str | None
) -> None:
    traffic, faulty = DemoTraffic(), store()
    await traffic.start(faulty, faulty)
    await faulty.enough.wait()
    await traffic.stop()
    assert bool(traffic.failures) == (words is not None)
    assert words is None or all(words in failure for failure in traffic.failures)
    assert words is not None or traffic.expected == {
        key: values[-1] for key, values in faulty.values.items()
    }


def test_a_value_names_its_write() -> None:
    assert count_in("k", value_of("k", 7)) == 7
    assert count_in("k", value_of("j", 7)) is None
    assert count_in("k", b"") is None
