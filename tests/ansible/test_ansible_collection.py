"""The collection and the playbooks of the checkout: complete, described, and without secrets."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .ansible_runs import CHECKOUT, COLLECTION, MISSING, PLAYBOOKS, PROGRAMS, PYTHON, environment

pytest.importorskip("ansible.release", reason=MISSING)
import yaml

ROLES = sorted(path.name for path in (COLLECTION / "roles").iterdir())
NOT_OURS = {"collections", "__pycache__"}
"""A link to the collection, and compiled files of its runs."""


def files_below(root: Path) -> list[Path]:
    """Return the files of a folder that the repository has."""
    return [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and NOT_OURS.isdisjoint(path.relative_to(root).parts)
    ]


FILES = [*files_below(COLLECTION), *files_below(PLAYBOOKS)]
SECRETS = re.compile(
    r"\b[0-9a-f]{40,}\b|PRIVATE KEY|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|(?i:password|passwd|token|secret)[\"']?\s*[:=]\s*[\"']?[A-Za-z0-9+/_-]{16,}"
)


def test_the_roles_are_there():
    assert ROLES == [
        "ares_client",
        "ares_consensus",
        "ares_gateway",
        "ares_server",
        "cassandra",
        "common",
        "etcd",
        "observability",
        "redis",
    ]


@pytest.mark.slow
def test_every_playbook_has_a_correct_syntax(tmp_path):
    playbooks = sorted(str(path) for path in PLAYBOOKS.glob("*.yml"))
    command = [PROGRAMS / "ansible-playbook", "--syntax-check", "-i", "localhost,", *playbooks]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(tmp_path), check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("playbook: ") == len(playbooks) >= 19


def test_every_playbook_is_in_the_collection():
    """Each file is linked, since `ansible-galaxy collection build` leaves out linked folders."""
    inside = COLLECTION / "playbooks"
    assert {path.relative_to(inside): path.resolve() for path in files_below(inside)} == {
        path.relative_to(PLAYBOOKS): path.resolve() for path in files_below(PLAYBOOKS)
    }


@pytest.mark.slow
def test_a_built_collection_plays_by_names(tmp_path):
    chosen = environment(tmp_path) | {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "installed")}

    def run(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [PROGRAMS / program, *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=chosen, cwd=tmp_path, check=False
        )

    checkout = tmp_path / "checkout"  # where `make collection` may write the dashboards
    for part in ("ansible", "playbooks", "packaging"):
        shutil.copytree(CHECKOUT / part, checkout / part, symlinks=True)
    shutil.copy(CHECKOUT / "LICENSE", checkout)
    subprocess.run([PYTHON, checkout / "packaging/grafana/dashboards.py"], check=True)
    source = ("build", checkout / "ansible", "--output-path", tmp_path)
    built = run("ansible-galaxy", "collection", *source)
    assert built.returncode == 0, built.stderr
    (archive,) = tmp_path.glob("ares-storage-*.tar.gz")
    to = ("--offline", "-p", tmp_path / "installed")
    installed = run("ansible-galaxy", "collection", "install", archive, *to)
    assert installed.returncode == 0, installed.stderr
    names = sorted(path.stem for path in PLAYBOOKS.glob("*.yml"))
    done = run(
        "ansible-playbook",
        "--syntax-check",
        "-i",
        "localhost,",
        *[f"ares.storage.{name}" for name in names],
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("playbook: ") == len(names)
    dashboards = tmp_path / "installed/ansible_collections/ares/storage/roles/observability/files"
    assert {path.name for path in dashboards.glob("*.json")} == {"live.json", "experiments.json"}


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_of_a_role_is_described(role):
    home = COLLECTION / "roles" / role
    defaults = yaml.safe_load((home / "defaults" / "main.yml").read_text())
    (entry,) = yaml.safe_load((home / "meta" / "argument_specs.yml").read_text())[
        "argument_specs"
    ].values()
    assert defaults.keys() == entry["options"].keys()
    assert all(name.startswith(f"{role}_") for name in defaults)
    text = (home / "README.md").read_text()
    assert [name for name in defaults if f"`{name}`" not in text] == []


@pytest.mark.parametrize("role", ROLES)
def test_variables_that_a_role_uses_have_a_value(role):
    """A variable with the name of a role in front is a default, registered, of a loop, or a fact.

    A misspelt name would stay unnoticed until a host needs it.
    """
    home = COLLECTION / "roles" / role
    text = "\n".join(
        path.read_text()
        for path in [
            *home.rglob("tasks/*.yml"),
            *home.rglob("templates/*"),
            *home.rglob("vars/*.yml"),
        ]
    )
    known = {
        name for path in home.glob("[dv]*/main.yml") for name in yaml.safe_load(path.read_text())
    }
    known |= set(
        re.findall(rf"(?:register: |loop_var: |^ +)({role}_\w+)(?:$|:)", text, re.MULTILINE)
    )
    given = {
        "common": {"common_process", "common_peer", "common_peer_packages", "common_ask_only"}
    }.get(role, set())
    assert set(re.findall(rf"(?<![\w.]){role}_\w+", text)) - known - given == set()


def test_no_secret_is_in_the_tree():
    texts = {
        path.relative_to(CHECKOUT): path.read_text() for path in FILES if path.suffix != ".json"
    }
    found = [
        f"{path}: {match[0][:20]}"
        for path, text in texts.items()
        for match in SECRETS.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["password: hunter2hunter2hunter2", "a" * 64, "-----BEGIN PRIVATE KEY-----"]
)
def test_a_secret_in_the_tree_would_be_noticed(text):
    assert SECRETS.search(text)


def test_tasks_that_handle_secrets_tell_nothing():
    for path in FILES:
        if path.suffix == ".yml" and "tasks" in path.parts:
            for task in yaml.safe_load(path.read_text()) or []:
                if (
                    re.search(r"secrets\[|client\.secret", str(task))
                    and "copy" in str(task.keys())
                    and "content" in str(task) + "client_key"
                ):
                    assert task.get("no_log") or "client.sh" in str(task), (path, task["name"])


def test_packages_of_services_start_nothing_and_bring_no_other_services():
    def installing(tasks):
        for task in tasks or []:
            yield from installing(task.get("block"))
            words = task.get("ansible.builtin.apt", {})
            if "deb" in words or "peer" in words.get("name", ""):
                yield words

    found = [
        words
        for path in (COLLECTION / "roles").glob("*/tasks/*.yml")
        for words in installing(yaml.safe_load(path.read_text()))
    ]
    assert len(found) == 2
    for words in found:
        assert words.get("policy_rc_d") == 101, words
        assert words.get("install_recommends") is False, words


@pytest.mark.parametrize("name", ["ares-server@", "ares-consensus@", "ares-gateway"])
def test_units_are_those_of_packaging(name):
    unit = COLLECTION / "roles" / "common" / "files" / f"{name}.service"
    assert unit.resolve() == CHECKOUT / "packaging" / "systemd" / unit.name


@pytest.mark.slow
def test_ansible_lint_finds_nothing(tmp_path):
    lint = shutil.which("ansible-lint", path=str(PROGRAMS))
    if lint is None:
        pytest.skip("ansible-lint is not installed: pip install 'ares-storage[ansible-dev]'")
    chosen = environment(tmp_path) | {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": str(PLAYBOOKS / "collections"),
    }
    done = subprocess.run(
        [lint, "-q", "--nocolor", "ansible", "playbooks"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        env=chosen,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
