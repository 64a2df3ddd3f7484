"""Notes that consensus members tell each other (ares/consensus/port.py)."""

from pathlib import Path

from ares.consensus.raft.replicated import NOTE_BYTES_MAX
from ares.model.identity import ServerId

from .clusters import LocalMembers, until

R0, R1, R2 = map(ServerId, ("r0", "r1", "r2"))


async def test_each_member_has_the_last_note_of_each_other_one(tmp_path: Path) -> None:
    members = LocalMembers(tmp_path)
    await members.start_all()

    def received(member: ServerId) -> set[bytes]:
        notes = members.running[member].received_notes()
        assert all(0 <= age_s < 60 for _, age_s in notes)
        return {note for note, _ in notes}

    try:
        members.running[R0].send_note(b"first")
        members.running[R1].send_note(b"of r1")
        await until(lambda: received(R2) == {b"first", b"of r1"} and received(R1) == {b"first"})
        members.running[R0].send_note(b"second")
        await until(lambda: received(R2) == {b"second", b"of r1"})
        members.running[R0].send_note(b"x" * (NOTE_BYTES_MAX + 1))
        await members.stop(R2)
        await members.start(R2)
        await until(lambda: received(R2) == {b"second", b"of r1"})
        members.running[R1].send_note(b"y" * NOTE_BYTES_MAX)
        await until(lambda: b"y" * NOTE_BYTES_MAX in received(R2) & received(R0))
    finally:
        await members.stop_all()
