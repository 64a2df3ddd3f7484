"""Notices to systemd, and the unit files as systemd reads them."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from ares.platform import systemd as service_manager

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(120)
        yield listening, tmp_path / "notify"


def test_the_service_manager_is_told(manager, monkeypatch):
    listening, path = manager
    listening.bind(str(path))
    monkeypatch.setenv(service_manager.NOTIFY_VARIABLE, str(path))
    service_manager.notify(service_manager.NOTIFY_READY, "s0 serves")
    assert listening.recv(1000) == b"READY=1\nSTATUS=s0 serves"


def test_the_service_manager_is_notified_at_an_abstract_address(manager, monkeypatch):
    listening, path = manager
    listening.bind(f"\0{path}")
    monkeypatch.setenv(service_manager.NOTIFY_VARIABLE, f"@{path}")
    service_manager.notify(service_manager.NOTIFY_STOPPING, "it stops")
    assert listening.recv(1000).startswith(b"STOPPING=1\n")


def test_without_systemd_nothing_happens(monkeypatch, caplog):
    monkeypatch.delenv(service_manager.NOTIFY_VARIABLE, raising=False)
    service_manager.notify(service_manager.NOTIFY_READY, "s0 serves")
    assert caplog.text == ""


def test_a_service_manager_that_is_gone_is_no_trouble(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv(service_manager.NOTIFY_VARIABLE, str(tmp_path / "nobody"))
    service_manager.notify(service_manager.NOTIFY_READY, "s0 serves")
    assert "was not told READY=1" in caplog.text


def verified(directory: Path, text: str, name: str) -> subprocess.CompletedProcess[str]:
    path = directory / name
    path.write_text(text.replace("/opt/ares/bin/ares-cli", shutil.which("true") or "/bin/true"))
    return subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        env=dict(os.environ),
    )


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
@pytest.mark.parametrize(
    "name", ["ares-server@.service", "ares-consensus@.service", "ares-gateway.service"]
)
def test_systemd_verifies_the_unit_files(tmp_path, name):
    text = (UNITS / name).read_text()
    done = verified(tmp_path, text, name)
    assert (done.returncode, done.stderr) == (0, "")
    wrong = verified(tmp_path, text.replace("NoNewPrivileges=yes", "NoNewPrivilege=yes"), name)
    assert "NoNewPrivilege" in wrong.stderr
