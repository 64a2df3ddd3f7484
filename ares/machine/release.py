"""The version of the program that runs: the release, and for a development state its commit.

setuptools-scm numbers by tags, which clones may lack, and only at installation, while the commit of
a checkout changes under an editable install. So the number is here, and the commit is read when the
program runs. This module imports nothing of `ares`: setuptools reads the version from it alone.
"""

import functools
import subprocess
from pathlib import Path

RELEASE = "0.2.0.dev"
"""The number of the release, with `.dev` until it is made."""

ARCHIVED = "$Format:%H$"
"""The commit in an archive that git made (.gitattributes)."""

DIGITS = 9
GIT_S = 2.0
NO_COMMIT = ""


@functools.cache
def version() -> str:
    """Return the release; of a development state `0.2.0.devN+gCOMMIT`, which has N commits.

    N is 0 where git does not answer, and the commit is missing where nothing says it. A change that
    is not committed does not show.
    """
    root = Path(__file__).parents[2]
    if not RELEASE.endswith(".dev"):
        return RELEASE
    if (root / ".git").exists():
        commit = _head(root / ".git")
        return _named(_commits(root, commit), commit)
    return _recorded(root) or _named(0, NO_COMMIT if ARCHIVED.startswith("$") else ARCHIVED)


def same_release(one: str, other: str) -> bool:
    """Return whether two versions are of the same commit, or equal where one names no commit."""
    commits = one.partition("+")[2], other.partition("+")[2]
    return commits[0] == commits[1] if all(commits) else one == other


def _named(commits: int, commit: str) -> str:
    return f"{RELEASE}{commits}+g{commit[:DIGITS]}" if commit else f"{RELEASE}{commits}"


def _recorded(root: Path) -> str:
    """Return the version that a package was built with: an installed one, or a source archive."""
    for installed in root.glob("ares_storage-*.dist-info"):
        return installed.name.removesuffix(".dist-info").partition("-")[2]
    try:
        lines = (root / "PKG-INFO").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    prefix = "Version: "
    return next((line.removeprefix(prefix) for line in lines if line.startswith(prefix)), "")


def _head(git: Path) -> str:
    """Return the commit of a checkout by reading git's files; its `.git` may point elsewhere."""
    try:
        if git.is_file():
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.exists() else git
        for place in (git / name, shared / name):
            if place.exists():
                return place.read_text().strip()
        packed = (line.split() for line in (shared / "packed-refs").read_text().splitlines())
        return next((words[0] for words in packed if words[1:] == [name]), NO_COMMIT)
    except (OSError, ValueError):
        return NO_COMMIT


def _commits(root: Path, commit: str) -> int:
    """Return the number of commits up to `commit`; 0 if git cannot tell."""
    if not commit:
        return 0
    try:
        return int(
            subprocess.run(
                ("git", "-C", root, "rev-list", "--count", commit, "--"),
                capture_output=True,
                check=True,
                timeout=GIT_S,
            ).stdout
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0
