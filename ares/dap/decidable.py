"""The choice of get-data's version (Alg. 3:13-15), safe with more than delta writers.

A completed put-data reached ceil((n+k)/2) servers, of which every quorum contains at least k. Each
of those k still lists the tag, or has dropped the tag for delta + 1 higher ones. Among the Lists of
a quorum:

- a tag listed by at least k servers can be decoded; the highest such tag is the candidate;
- a higher tag belongs to a write in progress and is passed over, *unless* the servers that list
  the tag and the servers that may have dropped it (``trimmed`` at or above the tag) together
  number k: the tag may be complete, and the choice is still open;
- likewise for tags that no server lists any more: the k-th highest ``trimmed`` bounds them.

With k = 1 and Lists of length 1 (ABD) this is the maximum.
"""

from collections import Counter
from collections.abc import Sequence

from ares.model.messages import DataReply
from ares.model.tag import TAG_ZERO, Tag


def newest_decodable(lists: Sequence[DataReply], k: int) -> Tag | None:
    """Return get-data's tag: t0 if no write completed, None if these Lists do not settle the tag.

    The published rule takes the highest tag in k Lists (Alg. 3:13-15).
    ``lists`` come from a quorum or more servers.
    """
    counts = Counter(tag for reply in lists for tag in reply.tags)
    hidden = _hidden(lists, k)
    for tag in sorted(counts, reverse=True):
        if counts[tag] >= k:
            return tag if hidden <= tag else None
        if (
            counts[tag]
            + sum(1 for reply in lists if reply.trimmed >= tag and tag not in reply.tags)
            >= k
        ):
            return None
    return TAG_ZERO if hidden == TAG_ZERO else None


def newest_possible(lists: Sequence[DataReply], k: int) -> Tag:
    """Return an upper bound of the tags completed before these Lists were sent.

    The Lists come from a quorum. Of a completed tag, k of these servers list the tag or may have
    dropped the tag.
    """
    possible = {
        tag
        for reply in lists
        for tag in reply.tags
        if sum(tag in other.tags or other.trimmed >= tag for other in lists) >= k
    }
    return max([*possible, _hidden(lists, k)])


def _hidden(lists: Sequence[DataReply], k: int) -> Tag:
    """Return the highest tag that k of these servers may have dropped."""
    return (
        sorted((reply.trimmed for reply in lists), reverse=True)[k - 1]
        if len(lists) >= k
        else TAG_ZERO
    )
