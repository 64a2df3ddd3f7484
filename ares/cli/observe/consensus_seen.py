"""Sentences of `status` and `top` about the consensus service."""

from ares.model.messages import ConsensusDescription
from ares.model.numbers import plural


def raft_outlook(answering: int, total: int, serves: bool) -> str:
    """Return the sentence for Raft. ``serves``: some domain has a quorum."""
    spare = answering - (total // 2 + 1)
    if spare < 0:
        goes_on = "reads and writes go on, " if serves else ""
        return (
            f"consensus: {answering} of {total} members answer, no majority: "
            f"{goes_on}reconfiguring and creating domains wait"
        )
    return (
        f"consensus: {answering} of {total} members answer; survives {spare or 'no'} more "
        f"crash{'' if spare == 1 else 'es'}"
    )


def etcd_outlook(members: list[ConsensusDescription], endpoints: int) -> str:
    """Return the sentence for an etcd.

    The endpoints in the cluster file need not be all members: an endpoint may stand for several.
    """
    waits = "reads and writes go on, reconfiguring and creating domains wait"
    answering = f"consensus: etcd; {len(members)} of {endpoints} endpoints answer"
    if not members:
        return f"{answering}: {waits}"
    total = members[0].members_total
    of_many = f"{answering}; it has {plural(total, 'member')}"
    return (
        of_many if any(member.leader for member in members) else f"{of_many} and no leader: {waits}"
    )
