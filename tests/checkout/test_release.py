"""Tests of the version: of checkouts, worktrees, archives, wheels and releases, and of status."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ares.cli.observe.observed_releases import releases, sentence, warning
from ares.model.messages import ConsensusDescription, Description
from ares.platform import release
from ares.platform.release import RELEASE

CHECKOUT = Path(__file__).parents[2]
PRINT_VERSION = "from ares.platform.release import version; print(version())"
DEVELOPED = RELEASE.removesuffix(".dev") + ".dev"
DAY = "2026-01-01T00:00:00Z"


def run(directory: Path, *words: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        words, cwd=directory, env=clean | environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def git(directory: Path, *words: str) -> str:
    own = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
    return run(directory, "git", *own, *words, GIT_CONFIG_GLOBAL=os.devnull)


def source(directory: Path) -> Path:
    """Write the sources of a development state without git."""
    (directory / "ares/platform").mkdir(parents=True)
    (directory / "ares/__init__.py").touch()
    text = (CHECKOUT / "ares/platform/release.py").read_text(encoding="utf-8")
    text = text.replace(f'RELEASE = "{RELEASE}"', f'RELEASE = "{DEVELOPED}"')
    (directory / "ares/platform/release.py").write_text(text, encoding="utf-8")
    shutil.copy(CHECKOUT / ".gitattributes", directory)
    return directory


def commit(directory: Path) -> str:
    git(directory, "commit", "--quiet", "--allow-empty", "--message=x")
    return git(directory, "rev-parse", "HEAD")[: release.DIGITS]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    made = source(tmp_path / "checkout")
    git(made, "init", "--quiet")
    git(made, "add", ".")
    commit(made)
    return made


def reported_version(directory: Path, **environment: str) -> str:
    return run(
        directory, sys.executable, "-c", PRINT_VERSION, PYTHONPATH=str(directory), **environment
    )


def test_a_checkout_names_its_commit_whatever_was_installed(checkout):
    head = commit(checkout)
    assert reported_version(checkout) == f"{DEVELOPED}2+g{head}"
    head = commit(checkout)
    assert reported_version(checkout) == f"{DEVELOPED}3+g{head}"
    git(checkout, "pack-refs", "--all")
    assert reported_version(checkout) == f"{DEVELOPED}3+g{head}"
    git(checkout, "checkout", "--quiet", "HEAD~1")
    assert reported_version(checkout).startswith(f"{DEVELOPED}2+g")


def test_a_worktree_names_the_commit_of_its_own_branch(checkout, tmp_path):
    tree = tmp_path / "tree"
    git(checkout, "worktree", "add", "--quiet", "-b", "branch", str(tree))
    head = commit(tree)
    assert reported_version(tree) == f"{DEVELOPED}2+g{head}"
    assert reported_version(checkout).startswith(f"{DEVELOPED}1+g")


def test_without_git_a_checkout_still_names_its_commit(checkout):
    head = commit(checkout)
    assert reported_version(checkout, PATH="/nonexistent") == f"{DEVELOPED}0+g{head}"


def test_a_copy_without_git_names_no_commit(tmp_path):
    assert reported_version(source(tmp_path)) == f"{DEVELOPED}0"


def test_an_archive_names_its_commit(checkout, tmp_path):
    head = commit(checkout)
    git(checkout, "archive", "--output=../archive.tar", "--prefix=archive/", "HEAD")
    run(tmp_path, "tar", "xf", "archive.tar")
    assert reported_version(tmp_path / "archive") == f"{DEVELOPED}0+g{head}"


def test_an_installed_package_and_a_source_archive_name_what_they_were_built_with(tmp_path):
    built = f"{DEVELOPED}7+g0123abcde"
    installed, archive = source(tmp_path / "site"), source(tmp_path / "archive")
    (installed / f"ares_storage-{built}.dist-info").mkdir()
    (archive / "PKG-INFO").write_text(f"Metadata-Version: 2.4\nVersion: {built}\n")
    assert (reported_version(installed), reported_version(archive)) == (built, built)


def test_a_release_has_its_version_without_git(monkeypatch):
    monkeypatch.setattr(release, "RELEASE", "9.9.0")
    monkeypatch.setattr(release, "_head", None)
    assert release.version.__wrapped__() == "9.9.0"


def test_importing_the_package_starts_no_process():
    code = "import sys, ares; print('subprocess' in sys.modules, ares.__version__)"
    found = run(CHECKOUT, sys.executable, "-c", code, PYTHONPATH=str(CHECKOUT))
    assert found == f"False {release.version()}"


def described(**versions: str) -> dict[str, Description | None]:
    return {
        id: Description(1, id, "", b"c", version, 0.0, 0, ()) for id, version in versions.items()
    }


def member(id: str, version: str) -> ConsensusDescription:
    return ConsensusDescription(1, id, id, 1, 1, 1, 1, version=version)


def test_one_release_is_no_warning():
    counted, uncounted = f"{DEVELOPED}7+g0123abcde", f"{DEVELOPED}0+g0123abcde"
    found = releases({**described(s0=counted, s1=uncounted), "s2": None}, [member("r0", counted)])
    assert found == {counted: ["s0", "s1", "r0"]}
    assert (sentence(found), warning(found)) == (f"release: {counted}", "")
    assert sentence(releases({"s0": None}, [])) == ""
    assert warning(releases({"s0": None}, [])) == ""


def test_mixed_releases_are_a_warning_that_names_the_processes():
    found = releases(described(s0="0.2.0", s1="0.1.0", s2="0.2.0"), [member("r0", "")])
    assert found == {"unknown release": ["r0"], "0.1.0": ["s1"], "0.2.0": ["s0", "s2"]}
    assert warning(found) == (
        "mixed releases: unknown release (r0), 0.1.0 (s1), 0.2.0 (s0, s2); "
        "bring all to the newest, servers first, then members"
    )
    assert sentence(found) == ""
    other = releases(described(s0=f"{DEVELOPED}7+g0123abcde", s1=f"{DEVELOPED}8+g1123abcde"), [])
    assert "mixed releases" in warning(other)
