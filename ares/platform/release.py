"""The version of the running program: the release, and the commit of a development state.

setuptools-scm takes numbers from tags, which clones may lack, and only at installation, while the
commit of a checkout changes under an editable install. This module has the number, and reads the
commit at run time. It imports nothing of `ares`: setuptools loads the module alone.
"""

import functools
import subprocess
from pathlib import Path

RELEASE = "0.3.0.dev"
"""Number of the release, with `.dev` until the release is made."""

ARCHIVED = "$Format:%H$"
"""Commit in an archive by git (.gitattributes)."""

DIGITS = 9
GIT_S = 2.0
NO_COMMIT = ""


@functools.cache
def version() -> str:
    """Return the release, or `0.3.0.devN+gCOMMIT` for a development state after N commits.

    N is 0 where git does not answer. A copy without git's files has no commit. Uncommitted changes
    do not show.
    """
    root = Path(__file__).parents[2]
    if not RELEASE.endswith(".dev"):
        return RELEASE
    if (root / ".git").exists():
        commit = _head(root / ".git")
        return _named(_commits(root, commit), commit)
    return _recorded(root) or _named(0, NO_COMMIT if ARCHIVED.startswith("$") else ARCHIVED)


def same_release(one: str, other: str) -> bool:
    """Return whether two versions name the same commit, or are equal without a commit."""
    commits = one.partition("+")[2], other.partition("+")[2]
    return commits[0] == commits[1] if all(commits) else one == other


def _named(commits: int, commit: str) -> str:
    return f"{RELEASE}{commits}+g{commit[:DIGITS]}" if commit else f"{RELEASE}{commits}"


def _recorded(root: Path) -> str:
    """Return the version of an installed package or of a source archive."""
    for installed in root.glob("ares_storage-*.dist-info"):
        return installed.name.removesuffix(".dist-info").partition("-")[2]
    try:
        lines = (root / "PKG-INFO").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    prefix = "Version: "
    return next((line.removeprefix(prefix) for line in lines if line.startswith(prefix)), "")


def _head(git: Path) -> str:
    """Return the commit of a checkout from git's files; a worktree's `.git` names a directory."""
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
