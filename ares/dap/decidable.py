"""Which version a get-data may return (Alg. 3:13-16), made safe when more than delta writers run at once.

A completed put-data reached ceil((n+k)/2) servers, of which every quorum contains at least k. Each of those k still lists the tag, or has
dropped it for delta + 1 higher ones. So, among the Lists of a quorum:

- a tag listed by at least k servers can be decoded; the highest such tag is the candidate;
- a higher tag belongs to a write in progress and is passed over, *unless* the servers that list it and those that may have dropped it
  (``trimmed`` at or above it) together number k: then it may be complete, and there is no answer yet;
- likewise for tags that nobody lists any more: the k-th highest ``trimmed`` bounds them.

With k = 1 and Lists of one (ABD) this is the maximum.
"""

from collections import Counter
from collections.abc import Sequence

from ares.model.messages import DataReply
from ares.model.tag import TAG_ZERO, Tag


def newest_decodable(lists: Sequence[DataReply], k: int) -> Tag | None:
    """The tag to return, t0 if nothing was written, or None if these Lists (a quorum's) do not settle it."""
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
    """Nothing that was completed before these Lists (a quorum's) were told has a higher tag: k of them list it, or may have dropped it."""
    possible = {
        tag
        for reply in lists
        for tag in reply.tags
        if sum(tag in other.tags or other.trimmed >= tag for other in lists) >= k
    }
    return max([*possible, _hidden(lists, k)])


def _hidden(lists: Sequence[DataReply], k: int) -> Tag:
    """The highest tag that k of them may have dropped."""
    return (
        sorted((reply.trimmed for reply in lists), reverse=True)[k - 1]
        if len(lists) >= k
        else TAG_ZERO
    )
