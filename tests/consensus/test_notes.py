"""Notes that consensus members tell each other (ares/consensus/port.py)."""

from pathlib import Path

from ares.consensus.raft.replicated import NOTE_BYTES_MAX
from ares.model.identity import ServerId

from .clusters import LocalMembers, until

R0, R1, R2 = map(ServerId, ("r0", "r1", "r2"))


async def test_each_member_has_the_last_note_of_each_other_one(tmp_path: Path) -> None:
    members = LocalMembers(tmp_path)
    await members.start_all()

    def told(member: ServerId) -> set[bytes]:
        notes = members.running[member].told()
        assert all(0 <= age_s < 60 for _, age_s in notes)
        return {note for note, _ in notes}

    try:
        members.running[R0].tell(b"first")
        members.running[R1].tell(b"of r1")
        await until(lambda: told(R2) == {b"first", b"of r1"} and told(R1) == {b"first"})
        members.running[R0].tell(b"second")
        await until(lambda: told(R2) == {b"second", b"of r1"})
        members.running[R0].tell(b"x" * (NOTE_BYTES_MAX + 1))
        await members.stop(R2)
        await members.start(R2)
        await until(lambda: told(R2) == {b"second", b"of r1"})
        members.running[R1].tell(b"y" * NOTE_BYTES_MAX)
        await until(lambda: b"y" * NOTE_BYTES_MAX in told(R2) & told(R0))
    finally:
        await members.stop_all()
