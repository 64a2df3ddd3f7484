"""The commits of a journal: one at a time, while the facts of the next commit gather.

The objects of a server have a journal, and each of its logs has another. A :class:`CommitLoop` runs
the commits of a journal. The requests of a turn of the event loop share a commit. The commit begins
at the end of the turn, or, during another commit, a turn after the effects of that commit: the loop
itself may wait for the disk (ares/store/journal/writer.py), and the replies must have left before.

Objects and logs differ in the effects of a commit, hence each owner of a journal has its own
:class:`Committer`:

- A reply about objects depends on the server's own disk only. It waits in a
  :class:`ares.replica.group_commit.GroupCommit`, and leaves when the commit is durable.
- A message of a log may wait for the disks of other servers as well. It waits in the log's node
  (ares/sharedlog/node.py), which hears of a durable commit and gives out the messages that may
  leave. They leave at the end of each turn, also during a commit.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from ares.model.identity import CallId
from ares.model.messages import PutData, Reason, Refused
from ares.net.port import Loop
from ares.platform import tasks

DISK_FULL_REFUSAL = (
    "its disk is full: it answers reads, and takes changes again when there is space"
)
"""Reason of a refusal."""

log = logging.getLogger(__name__)

CommitDone = Callable[[OSError | None, Sequence[PutData]], None]


class FullDisk:
    """Refusals of changes without room on the disk, with a line in the log at begin and end.

    ``refused``: the refused changes, in the lines. ``quiet_s``: after this time without a refusal,
    a change with room proves that the disk has space. Logs need such a time: the present place of a
    log may have room while another log has no room.
    """

    def __init__(self, time: Callable[[], float], refused: str, quiet_s: float = 0.0) -> None:
        self.refuses = False
        self._time = time
        self._refused = refused
        self._quiet_s = quiet_s
        self._refused_at = -math.inf

    def refuse(self, call: CallId) -> Refused:
        """Return the refusal of a change that has no room."""
        self._refused_at = self._time()
        if not self.refuses:
            self.refuses = True
            log.error(
                "the disk is full: changes of %s are refused, reads go on; it takes changes again "
                "when there is space",
                self._refused,
            )
        return Refused(call, Reason.STORAGE, DISK_FULL_REFUSAL)

    def take(self) -> None:
        """Take note of a change that has room."""
        if self.refuses and self.is_quiet:
            self.refuses = False
            log.warning("the disk has space again: changes of %s are taken", self._refused)

    @property
    def is_quiet(self) -> bool:
        """Return whether no change was refused for ``quiet_s``."""
        return self._time() - self._refused_at >= self._quiet_s


class Committer(Protocol):
    """The owner of a journal, whose commits a :class:`CommitLoop` runs.

    An OSError of any method is a failure of the disk.
    """

    def end_turn(self) -> bool:
        """Append the facts of this turn; return whether facts wait for a commit."""

    def begin_commit(self, done: CommitDone) -> None:
        """Commit the appended facts; see :meth:`ares.store.port.Journal.commit`."""

    def end_commit(self, moved: Sequence[PutData]) -> None:
        """Release the replies that wait for the commit, whose facts are durable now."""


class CommitLoop:
    """The commits of ``owner``'s journal.

    ``fail``: called once, when the disk fails. ``name``: of the commits, in reports.
    """

    def __init__(
        self, owner: Committer, loop: Loop, fail: Callable[[OSError], None], name: str
    ) -> None:
        self.committing = False
        """A commit is under way, or its effects have not left."""
        self.stopped = False
        """No commit begins or ends any more."""
        self.committed: Callable[[], None] = lambda: None
        """Called after each commit, when the disk has less to do."""
        self._owner = owner
        self._loop = loop
        self._fail = fail
        self._name = name
        self._scheduled = False
        self._wakers: list[asyncio.Future[None]] = []

    def schedule(self) -> None:
        """End the present turn of the event loop with :meth:`turn`."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.turn)

    def turn(self) -> None:
        """End a turn of the owner, and begin a commit unless one is under way."""
        self._scheduled = False
        if self.stopped:
            return
        try:
            if self._owner.end_turn() and not self.committing:
                self.committing = True
                self._owner.begin_commit(self._durable)
        except OSError as error:
            self.fail(error)
        except Exception as error:
            self.fail(tasks.failures.fatal(self._name, error))
        if not self.committing and not self._scheduled:
            self._wake()

    def _durable(self, error: OSError | None, moved: Sequence[PutData]) -> None:
        if self.stopped:
            return
        self._scheduled = True  # `_next` is the turn for all work below
        try:
            if error is not None:
                raise error
            self._owner.end_commit(moved)
        except OSError as failed:
            self.fail(failed)
        except Exception as mistake:
            self.fail(tasks.failures.fatal(self._name, mistake))
        else:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.committing = False
        self.turn()
        self.committed()

    def fail(self, error: OSError) -> None:
        """Stop after a failure of the disk. No waiting request is ever answered.

        The facts may or may not be durable, and a later read may differ from the content of the
        disk.
        """
        if not self.stopped:
            self.stop()
            self._fail(error)

    def stop(self) -> None:
        """Let no commit begin or end any more."""
        self.stopped = True
        self._wake()

    async def settle(self) -> None:
        """Wait until no work waits for the disk."""
        if (self.committing or self._scheduled) and not self.stopped:
            waker = asyncio.get_running_loop().create_future()
            self._wakers.append(waker)
            await waker

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)
