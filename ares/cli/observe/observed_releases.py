"""The releases of the processes of a cluster, and a warning when they differ."""

from collections.abc import Iterable, Mapping

from ares.cli.terminal import printable
from ares.model.identity import ServerId
from ares.model.messages import ConsensusDescription, Description
from ares.platform.release import same_release

UNKNOWN_RELEASE = "unknown release"
"""Release of a process without a version in the answer."""


def releases(
    servers: Mapping[ServerId, Description | None], members: Iterable[ConsensusDescription]
) -> dict[str, list[ServerId]]:
    """Return the answering processes by release; each commit counts as a release."""
    releases_seen = [
        (id, description.version) for id, description in servers.items() if description is not None
    ]
    releases_seen += [(member.member, member.version) for member in members]
    found: dict[str, list[ServerId]] = {}
    for id, version in releases_seen:
        known = (release for release in found if same_release(release, version))
        found.setdefault(next(known, version), []).append(id)
    return {printable(version) or UNKNOWN_RELEASE: found[version] for version in sorted(found)}


def sentence(found: Mapping[str, list[ServerId]]) -> str:
    """Return the release of a cluster; empty where no process answers or releases are mixed."""
    return f"release: {next(iter(found))}" if len(found) == 1 else ""


def warning(found: Mapping[str, list[ServerId]]) -> str:
    """Return the warning of mixed releases; empty for a single release."""
    if len(found) < 2:
        return ""
    each = ", ".join(f"{release} ({', '.join(ids)})" for release, ids in found.items())
    return f"mixed releases: {each}; bring all to the newest, servers first, then members"
