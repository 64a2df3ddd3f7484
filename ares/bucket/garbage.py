"""The judgement of names in the domain of blobs: which names may be dropped.

A process judges by the index at the own position. The answer yes stays true at every later
position; collectors may therefore be several, slow, stopped or ended:

- a blob in the garbage since command g is needed by no read after g, and the promises of all live
  sessions are beyond g; a later session reads later;
- a name without a place is in no entry, upload, garbage and kept snapshot. The session has ended,
  or has promised to name the blob in no later command; the fold refuses such a command.

A session's number is the position of its OpenSession. A number below the position without a live
session is an ended session; ended sessions need no memory.
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


def may_forget(state: BucketState, blob: Blob) -> bool:
    """Return whether the fold forgets garbage that was dropped.

    A later command of the blob's session could name a forgotten blob again, unless the session
    promised otherwise.
    """
    place, session = state.place(blob), state.sessions.get(blob.session)
    is_named = session is not None and session.may_name(blob.counter)
    return not is_named and place is not None and may_drop(state, blob)
