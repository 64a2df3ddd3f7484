"""The version that a get-data returns, with servers that have arbitrary partial puts.

See ares/dap/decidable.py; Property 1, C1.
"""

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ares.dap.decidable import newest_decodable
from ares.dap.version_list import VersionList, capacity
from ares.model.configuration import Configuration
from ares.model.messages import DataReply, Element
from ares.model.tag import TAG_ZERO, Tag

ELEMENT = Element(0, 0, 0, ())


class ModelCluster:
    """Servers, the puts at each, and the complete tags."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.versions = [VersionList() for _ in range(configuration.n)]
        self.got: dict[Tag, set[int]] = {}

    def put(self, tag: Tag, server: int) -> None:
        self.versions[server].put(tag, ELEMENT, capacity(self.configuration))
        self.got.setdefault(tag, set()).add(server)

    @property
    def completed(self) -> Tag:
        size = self.configuration.quorum_size
        return max(
            (tag for tag, servers in self.got.items() if len(servers) >= size), default=TAG_ZERO
        )

    def lists(self, quorum: list[int]) -> list[DataReply]:
        return [
            DataReply(1, self.versions[server].tags(), 0, self.versions[server].trimmed, None, None)
            for server in quorum
        ]


def specification(lists: list[DataReply], k: int) -> Tag | None:
    """Return the answer by the specification.

    No tag that could be complete by these Lists may be above the answer, and k Lists must have the
    answer.
    """
    universe = {tag for reply in lists for tag in (*reply.tags, reply.trimmed)} | {TAG_ZERO}
    supplied = [
        tag for tag in universe if tag == TAG_ZERO or sum(tag in reply.tags for reply in lists) >= k
    ]
    conceivable = [
        tag
        for tag in universe
        if sum(tag in reply.tags or reply.trimmed >= tag for reply in lists) >= k
    ]
    return max(supplied) if max(conceivable, default=TAG_ZERO) <= max(supplied) else None


@st.composite
def clusters(draw):
    n = draw(st.integers(2, 6))
    names = [f"s{number}" for number in range(n)]
    if draw(st.booleans()):
        configuration = Configuration.ec(
            names, draw(st.integers(1, n - 1)), draw(st.integers(1, 2)), allow_no_faults=True
        )
    else:
        configuration = Configuration.abd(names, allow_no_faults=True)
    cluster = ModelCluster(configuration)
    writes = draw(
        st.lists(
            st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**n - 1)), max_size=7
        )
    )
    deliveries = [
        (Tag(number, writer), server)
        for number, writer, reach in writes
        for server in range(n)
        if reach >> server & 1
    ]
    for tag, server in draw(st.permutations(deliveries)):
        cluster.put(tag, server)
    quorum = draw(st.permutations(range(n)))[: draw(st.integers(configuration.quorum_size, n))]
    return cluster, quorum


@settings(deadline=None, max_examples=800)
@given(clusters())
def test_the_answer_is_what_the_specification_says(drawn):
    """Alg. 3:13-15."""
    cluster, quorum = drawn
    lists, k = cluster.lists(quorum), cluster.configuration.k
    tag = newest_decodable(lists, k)
    assert tag == specification(lists, k)
    if tag is not None:
        assert tag >= cluster.completed, "a completed put-data is lost"
        assert tag == TAG_ZERO or sum(tag in reply.tags for reply in lists) >= k, (
            "k elements are not there"
        )
    if cluster.configuration.dap == "abd":
        assert tag == max((reply.tags[0] for reply in lists if reply.tags), default=TAG_ZERO)


def test_k_servers_may_have_dropped_what_k_others_never_had():
    """Two times k servers in a quorum: rare enough to be made by hand."""
    cluster = ModelCluster(Configuration.ec([f"s{number}" for number in range(6)], 2, 1))
    for tag, servers in [(1, range(6)), (5, [0, 1, 4, 5]), (8, [0]), (9, [0]), (6, [1]), (7, [1])]:
        for server in servers:
            cluster.put(Tag(tag, 1), server)
    lists = cluster.lists([0, 1, 2, 3])
    assert cluster.completed == Tag(5, 1)
    assert newest_decodable(lists, 2) is specification(lists, 2) is None


@settings(deadline=None, max_examples=300)
@given(clusters())
def test_with_at_most_delta_writes_there_is_always_an_answer(drawn):
    cluster, quorum = drawn
    assume(len(cluster.got) <= capacity(cluster.configuration))
    assert newest_decodable(cluster.lists(quorum), cluster.configuration.k) is not None


@settings(deadline=None, max_examples=300)
@given(clusters(), st.randoms())
def test_the_order_of_the_lists_does_not_matter(drawn, rng):
    cluster, quorum = drawn
    lists, k = cluster.lists(quorum), cluster.configuration.k
    shuffled = rng.sample(lists, len(lists))
    assert newest_decodable(lists, k) == newest_decodable(shuffled, k)


def published(lists: list[DataReply], k: int) -> Tag:
    """Return the highest tag in k Lists, by Alg. 3:13-14, ignoring dropped tags."""
    counts = Counter(tag for reply in lists for tag in reply.tags)
    return max((tag for tag, count in counts.items() if count >= k), default=TAG_ZERO)


def test_the_published_rule_loses_a_completed_write_when_more_than_delta_write():
    """Negative control: the specification detects this fault (Alg. 3:13-15)."""
    cluster = ModelCluster(Configuration.ec([f"s{number}" for number in range(5)], 3, 1))
    for tag, servers in [(1, range(5)), (2, range(4)), (3, [0]), (4, [0])]:
        for server in servers:
            cluster.put(Tag(tag, 1), server)
    lists = cluster.lists([0, 1, 2, 4])
    assert cluster.completed == Tag(2, 1)
    assert published(lists, 3) == Tag(1, 1)
    assert specification(lists, 3) is newest_decodable(lists, 3) is None
