"""The judgement of names in the domain of blobs: those that may be dropped.

A process judges by the index at its own position. The answer yes stays true at every later
position, so collectors may be several, slow, stopped or ended:

- a blob in the garbage since command g is needed by no read that begins after g, and the promises
  of all live sessions are beyond g; a session that opens later reads later;
- a name without a place is in no entry, upload, garbage and kept snapshot. Its session has ended,
  or has promised that no later command names it; the fold refuses such a command.

A session's number is the position of its OpenSession. A number below the position without a live
session is a session that has ended; ended sessions need no memory.
"""

from ares.bucket.bucket_state import BucketState
from ares.bucket.index_records import Blob


def may_drop(state: BucketState, blob: Blob) -> bool:
    """Return whether no process may ever need the blob again, by the index at its position."""
    place = state.place(blob)
    if place is not None:
        return place.garbage is not None and place.garbage < state.lowest_reading
    session = state.sessions.get(blob.session)
    if session is not None:
        return not session.may_name(blob.counter)
    return blob.session < state.position
