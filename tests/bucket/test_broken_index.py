"""An index that was left unfinished: it answers nothing from then on."""

import pytest

from ares.bucket.commands import CreateBucket, PutObject
from ares.bucket.fold import DIGESTS_KEPT, BrokenIndex
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTableFailed
from tests.bucket.index_driver import IndexDriver


class FullTable(MemoryTable):
    """A table on a disk with room for ``room`` more rows."""

    room = 10**6

    def put(self, key, value):
        self.room -= 1
        if self.room < 0:
            raise RowTableFailed("the disk is full")
        super().put(key, value)

    def save(self, point):
        if self.room <= 0:
            raise RowTableFailed("the disk is full")
        super().save(point)


@pytest.mark.parametrize("room", range(6))
def test_an_unfinished_entry_stops_the_fold(room):
    index = IndexDriver(FullTable())
    session = index.session()
    session.give(CreateBucket("photos"))
    index.fold.save()
    index.state.table.room = room

    def fill():
        session.give(PutObject("photos", "cat", session.blob(), "e"), invocation=b"i")
        index.fold.save()

    with pytest.raises(RowTableFailed):
        fill()
    index.fold._state.table.room = 10**6
    for answer in (
        *(lambda: index.state, lambda: index.fold.digest_at(1), index.fold.save),
        lambda: index.fold.apply(b""),
    ):
        with pytest.raises(BrokenIndex, match="open the index again"):
            answer()


def test_the_last_digests_are_known():
    index = IndexDriver()
    assert [index.fold.digest_at(position) for position in (0, 1)] == [0, None]
    digests = [0]
    for _ in range(DIGESTS_KEPT + 3):
        index.apply(b"")
        digests.append(index.state.digest)
    assert [index.fold.digest_at(position) for position in range(3, len(digests))] == [
        *(None,), *digests[4:],
    ]  # fmt: skip
