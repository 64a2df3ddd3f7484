"""Hosts in namespaces: start, SSH, links under orders, and removal even after kill -9."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments import ENVIRONMENT
from experiments.__main__ import main
from experiments.bench.store_processes import cpu_s
from experiments.testbeds import local_testbed, slots
from experiments.testbeds.local_testbed import LocalTestbed, obstacle
from experiments.testbeds.testbed_plan import HostPlan, LinkPlan

from .inventories import inventory_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(obstacle() is not None, reason=obstacle() or ""),
]

PROBE = Path(__file__).with_name("network_probe.py")
ANSIBLE = shutil.which("ansible", path=f"{Path(python()[0]).parent}:{os.environ['PATH']}")
DISK_BYTES = 1 << 20
HOSTS = [
    HostPlan("s0", "nantes", ["servers"], {"/var/lib/small": DISK_BYTES}),
    HostPlan("s1", "nantes", ["servers"]),
    HostPlan("w0", "lille", ["writers"]),
]
MAKER = """
import sys, time
from pathlib import Path
from experiments.testbeds.local_testbed import testbed
from experiments.testbeds.testbed_plan import HostPlan, LinkPlan
hosts = [HostPlan("a", "x"), HostPlan("b", "y")]
with testbed(hosts, [LinkPlan("x", "y", 5)], Path(sys.argv[1])) as made:
    print(made._slot.number, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[LocalTestbed]:
    with local_testbed.testbed(
        HOSTS, [LinkPlan("nantes", "lille", 20)], tmp_path_factory.mktemp("made")
    ) as made:
        yield made


def ssh(made: LocalTestbed, host: str, *words: str) -> list[str]:
    """Return a command on a host, in the form that ansible would start with the inventory."""
    known = inventory_of(made.inventory)["all"]["hosts"][host]
    kept = [
        "-o",
        "ControlMaster=auto",
        "-o",
        "ControlPersist=60s",
        "-o",
        f"ControlPath={known['ansible_control_path_dir']}/%C",
    ]
    where = [
        "-i",
        known["ansible_ssh_private_key_file"],
        f"{known['ansible_user']}@{known['ansible_host']}",
    ]
    return ["ssh", *kept, *shlex.split(known["ansible_ssh_common_args"]), *where, shlex.join(words)]


def on(made: LocalTestbed, host: str, *words: str) -> str:
    done = subprocess.run(
        ssh(made, host, *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Serving:
    """The probe as a server on ``host``; the remaining hosts measure their network to ``host``."""

    def __init__(self, made: LocalTestbed, host: str) -> None:
        self.made = made
        self.address = made.address(host)
        command = ssh(made, host, *python(PROBE, "serve", self.address))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = self.process.stdout.readline().strip()

    def tried(self, host: str, what: str, count: int) -> float:
        return float(on(self.made, host, *python(PROBE, what, self.address, self.port, str(count))))


@pytest.fixture(scope="module")
def serving(made) -> Iterator[Serving]:
    serving = Serving(made, "s0")
    yield serving
    serving.process.kill()
    serving.process.wait()


def test_hosts_have_names_files_and_processes_of_their_own(made):
    assert [on(made, host.name, "hostname") for host in HOSTS] == ["s0", "s1", "w0"]
    on(made, "s0", "touch", "/etc/only-here", "/var/tmp/only-here")
    assert on(made, "s0", "cat", "/etc/hostname") == "s0"
    for path in ("/etc/only-here", "/var/tmp/only-here"):
        assert not Path(path).exists()
        assert on(made, "s1", "sh", "-c", f"test -e {path} || echo none") == "none"
    pids = on(made, "s1", "sh", "-c", "echo /proc/[0-9]*").split()
    assert len(pids) < 12
    assert on(made, "s1", "cat", "/proc/1/comm") == "sshd"


def test_another_host_key_is_refused(made):
    command = ssh(made, "s1", "true")
    at = made.address("s0")
    command[1:1] = ["-o", "ControlPath=none"]
    command[-2:] = [
        "-o",
        "HostKeyAlias=" + made.address("s1"),
        f"root@{at}",
        "true",
    ]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 255
    assert "IDENTIFICATION HAS CHANGED" in refused.stderr


@pytest.mark.skipif(ANSIBLE is None, reason="no ansible: pip install ansible-core")
def test_ansible_reaches_every_host(made):
    command = [str(ANSIBLE), "-i", str(made.inventory), "servers:clients", "-m", "ping"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"ANSIBLE_CONFIG": str(made.inventory.with_name("ansible.cfg"))},
    )
    assert done.stdout.count("SUCCESS") == 3, done.stdout + done.stderr


def test_delays_are_what_was_asked(made, serving):
    assert 40 <= serving.tried("w0", "rtt", 20) <= 46
    assert serving.tried("s1", "rtt", 20) < 10, "within a site there is no delay"
    made.delay("lille", "nantes", 50, 2)
    assert 95 <= serving.tried("w0", "rtt", 20) <= 115
    made.delay("lille", "nantes", 0)
    assert serving.tried("w0", "rtt", 20) < 10


def test_sites_are_cut_apart_and_joined(made, serving):
    made.cut("nantes", "lille")
    with pytest.raises(AssertionError, match="TimeoutError"):
        serving.tried("w0", "rtt", 1)
    assert serving.tried("s1", "rtt", 1) > 0
    assert on(made, "w0", "hostname") == "w0", "the controller is not cut off"
    made.join("nantes", "lille")
    assert serving.tried("w0", "rtt", 1) > 0


def test_as_many_packets_get_lost_as_were_asked(made, serving):
    made.delay("nantes", "lille", 1, loss=0.1)
    assert 0.14 < serving.tried("w0", "lost", 1000) < 0.24, "0.19 of those that go there and back"
    assert serving.tried("w0", "rate", 1 << 16) > 0, "TCP sends again what was lost"
    made.delay("nantes", "lille", 0)
    assert serving.tried("w0", "lost", 200) == 0


def test_bandwidth_is_bounded(made, serving):
    made.bandwidth("w0", 8_000_000)
    assert serving.tried("w0", "rate", 1 << 20) < 9_000_000
    made.bandwidth("w0", None)
    assert serving.tried("w0", "rate", 1 << 20) > 16_000_000


def test_what_goes_between_sites_is_counted(made, serving):
    before = made.traffic()
    serving.tried("w0", "rate", 1 << 20)
    serving.tried("s1", "rate", 1 << 20)
    went = {way: count - before[way] for way, count in made.traffic().items()}
    assert 1 << 20 < went["lille", "nantes"] < 1.2 * (1 << 20)
    assert 0 < went["nantes", "lille"] < 1 << 17


def test_processes_are_slowed(made):
    busy = subprocess.Popen(ssh(made, "s1", *python("-c", "while True: pass", "busy")))
    try:
        pids: list[int] = []
        deadline_s = time.monotonic() + 60
        while not pids:
            assert time.monotonic() < deadline_s
            with contextlib.suppress(BadInput):
                pids = made.slow("s1", "True: pass busy$", 20)
            time.sleep(0.05)
        before, begun_s = cpu_s(pids[-1]), time.monotonic()
        time.sleep(1.5)
        assert cpu_s(pids[-1]) - before < 0.4 * (time.monotonic() - begun_s)
        assert made.slow("s1", "True: pass busy$", 100) == pids
        with pytest.raises(BadInput, match="no process of this host"):
            made.slow("s0", "True: pass busy$", 20)
    finally:
        busy.kill()
        busy.wait()


def test_disks_are_filled_and_emptied(made):
    def written() -> str:
        return on(
            made,
            "s0",
            "sh",
            "-c",
            "head -c 500000 /dev/zero >/var/lib/small/data && echo all || echo full",
        )

    made.fill("s0", "/var/lib/small", 0)
    assert written() == "full"
    made.fill("s0", "/var/lib/small", DISK_BYTES)
    assert written() == "all"
    with pytest.raises(BadInput, match="only a disk of limited size"):
        made.fill("s0", "/", 0)


def test_bad_orders_change_nothing(made):
    for order in (
        lambda: made.cut("nantes", "paris"),
        lambda: made.cut("nantes", "nantes"),
        lambda: made.delay("nantes", "lille", -1),
        lambda: made.bandwidth("s9", None),
        lambda: made.bandwidth("s0", 1),
        lambda: made.slow("s0", "(", 20),
        lambda: made.slow("s0", "sshd", 0),
    ):
        with pytest.raises(BadInput, match=r"[Nn]othing was changed"):
            order()


def left_of(number: int, directory: Path) -> list[str]:
    """Return the remains of a testbed: namespaces, interfaces, mounts, rules, processes and files.

    Other users may have testbeds at the same time.
    """
    commands = [
        "ip netns list",
        "ip -o link show",
        "ip route",
        "cat /proc/self/mounts",
        "iptables-legacy-save",
        "ls -A /var/tmp",
        "ps -eo args",
    ]
    shown = [
        subprocess.run(command.split(), capture_output=True, text=True, check=False).stdout
        for command in commands
    ]
    marks = re.compile(rf"arestb{number}\b|{re.escape(str(directory))}")
    own = [str(path) for path in slots.PLACE.iterdir() if path.name == str(number)]
    return own + [line for text in shown for line in text.splitlines() if marks.search(line)]


def experiments(*words: str) -> str:
    done = subprocess.run(
        python("-m", "experiments", *words),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_nothing_is_left_of_a_testbed_whose_maker_was_killed(made, tmp_path):
    with subprocess.Popen(
        python("-c", MAKER, tmp_path), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as maker:
        try:
            assert maker.stdout is not None
            number = int(maker.stdout.readline())
            assert (
                f"testbed {number}: used by process {maker.pid}; hosts: 2, sites: 2"
                in experiments("local", "status")
            )
            assert f"testbed {number} is in use" in experiments(
                "local", "clean", str(number), "--yes"
            )
            assert (tmp_path / "testbed/inventory.yml").exists()
        finally:
            maker.send_signal(signal.SIGKILL)
    assert f"arestb{number}-a" in "".join(left_of(number, tmp_path))
    told = experiments("local", "clean", str(number), "--yes")
    assert (
        f"testbed {number}: removed 5 processes, interface arestb{number}, 3 namespaces, "
        f"{tmp_path}/testbed" in told
    )
    assert f"testbed {made.number}" not in told, "the other testbed is left alone"
    assert left_of(number, tmp_path) == []
    assert not (tmp_path / "testbed").exists()
    assert on(made, "s0", "hostname") == "s0"


def test_two_testbeds_have_addresses_of_their_own_and_one_directory_is_for_one(made, tmp_path):
    with local_testbed.testbed([HostPlan("s0", "nantes")], [], tmp_path) as other:
        assert other.address("s0") != made.address("s0")
        assert on(other, "s0", "hostname") == "s0"
        with (
            pytest.raises(BadInput, match="is there already"),
            local_testbed.testbed([HostPlan("s0", "nantes")], [], tmp_path),
        ):
            pass
        assert on(other, "s0", "hostname") == "s0"
    assert not (tmp_path / "testbed").exists()


def test_nothing_is_left_of_one_that_fails(made, tmp_path, monkeypatch):
    claimed: list[slots.Slot] = []
    claim = slots.claim
    monkeypatch.setattr(slots, "claim", lambda: claimed.append(claim()) or claimed[-1])
    monkeypatch.setattr(local_testbed, "_HOST_SCRIPT", tmp_path / "missing.sh")
    with (
        pytest.raises(local_testbed.NamespaceFailed, match="is host s0 ended"),
        local_testbed.testbed([HostPlan("s0", "x")], [], tmp_path),
    ):
        pass
    assert left_of(claimed[0].number, tmp_path) == []


def test_directories_that_will_not_do_are_refused(tmp_path):
    (tmp_path / "file").touch()
    for directory, why in (
        (tmp_path / "a b", "options of a mount"),
        (tmp_path / "file", "is no directory"),
    ):
        with (
            pytest.raises(BadInput, match=why),
            local_testbed.testbed([HostPlan("s0", "x")], [], directory),
        ):
            pass
    over, layers = tmp_path / "over", tmp_path / "layers"
    over.mkdir()
    layers.mkdir()
    script = f"""
        mount -t tmpfs layers {layers}; mkdir {layers}/lower {layers}/upper {layers}/work
        cd {layers}
        mount -t overlay over -o lowerdir=lower,upperdir=upper,workdir=work {over}
        cd /
        exec "$@" --directory {over}
    """
    up = python("-m", "experiments", "local", "up", "1")
    refused = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", script, "sh", *up],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert refused.returncode == 1
    assert "is on an overlay" in refused.stderr


def test_a_state_that_cannot_be_read_removes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(slots, "PLACE", tmp_path / "testbeds")
    slot = slots.claim()
    assert slots.status() == [f"testbed {slot.number}: nothing was made yet"]
    slot.release()
    for content in (
        "",
        '{"number": 0',
        '{"number":0,"maker":1,"directory":"/tmp","link":"eth0","namespaces":[]}',
    ):
        (slot.place / "state.json").write_text(content)
        (told,) = slots.clean([slot.number])
        assert "othing was removed" in told
        assert slot.place.exists()
    (slot.place / "state.json").unlink()
    assert slots.clean([slot.number]) == [
        f"testbed {slot.number}: removed nothing, as nothing was made"
    ]
    assert not slots.PLACE.exists()


def test_a_testbed_is_removed_by_its_name_and_after_a_question(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slots, "PLACE", tmp_path / "testbeds")
    assert main(["local", "clean"]) == 0
    assert "there is no testbed" in capsys.readouterr().out
    numbers = []
    for _ in range(3):
        slot = slots.claim()
        slot.release()
        numbers.append(slot.number)
    answers: list[str] = []

    def answer(question: str) -> str:
        sys.stdout.write(question)
        if not answers:
            raise EOFError
        return answers.pop()

    monkeypatch.setattr("builtins.input", answer)
    first, second, third = map(str, numbers)
    for words, given, why in (
        ([], [], f"say which testbed: its number, or all. Nothing was removed\ntestbed {first}"),
        (["nine"], [], f"no testbed nine; there are: {first}, {second}, {third}. Nothing"),
        ([first, "x\x1b[1m"], [], "no testbed x?[1m"),
        ([first], ["n"], "nothing was removed; --yes"),
        ([first], [], "nothing was removed; --yes"),
    ):
        answers[:] = given
        assert main(["local", "clean", *words]) == 1
        assert why in capsys.readouterr().err
        assert len(list(slots.PLACE.iterdir())) == 3
    answers[:] = ["y"]
    assert main(["local", "clean", f"arestb{second}"]) == 0
    assert f"Remove testbed {second} with" in capsys.readouterr().out
    assert sorted(path.name for path in slots.PLACE.iterdir()) == [first, third]
    assert main(["local", "clean", "all", "--yes"]) == 0
    assert not slots.PLACE.exists()
