"""Arbitrary vocabulary: every message type with arbitrary field values, as on a network."""

from typing import get_args

from hypothesis import strategies as st

from ares.model.codec import DETACHED_BYTES_MIN
from ares.model.configuration import (
    BACKENDS,
    DELTA_MAX,
    SERVERS_MAX,
    Configuration,
    Server,
    Status,
    Successor,
)
from ares.model.identity import VALUE_BYTES_MAX
from ares.model.log_messages import (
    FOLLOW_S_MAX,
    RANGE_MAX,
    READ_BYTES_MAX,
    SECRET_BYTES,
    Append,
    Appended,
    AppendOutcome,
    AwaitAppend,
    Committed,
    EachRead,
    Fetch,
    Fetched,
    Forward,
    GivenBack,
    LogEntries,
    LogRecord,
    Look,
    LookDone,
    LookRow,
    ReadEach,
    ReadLog,
    RowFound,
    RowPlace,
    Seal,
    SealDone,
    Stand,
    Stood,
    TakeBack,
    Trim,
    TrimDone,
)
from ares.model.messages import (
    LEFT_LENGTH,
    Ack,
    Adopt,
    AheadReply,
    AnyMessage,
    AskedFrom,
    ChangedObjects,
    CollectConfig,
    ConfigurationReport,
    ConsensusDescription,
    DataReply,
    Decided,
    Describe,
    DescribeConsensus,
    Description,
    DiskUsage,
    Drop,
    Element,
    Finalize,
    FollowReport,
    GetAhead,
    GetData,
    GetHint,
    GetTag,
    Hint,
    Introduce,
    ListedObject,
    ListEntry,
    ListObjects,
    ListReply,
    Located,
    ObjectsReply,
    ObjectVersion,
    Propose,
    PullElement,
    PutAhead,
    PutData,
    QueryList,
    ReadConfig,
    Reason,
    Refused,
    RequestDone,
    Scrub,
    ScrubReply,
    SetLogLevel,
    TagReply,
    TellFinalized,
    Undecided,
    Usage,
    WatchObjects,
    Where,
    WriteConfig,
)
from ares.model.numbers import PAST_SECONDS_MAX, POSITION_MAX, RATE_MAX
from ares.model.tag import Tag

words = st.integers(0, 2**64 - 1)
counts = st.integers(0, POSITION_MAX)
lengths = st.integers(LEFT_LENGTH, VALUE_BYTES_MAX)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ids = st.binary(max_size=16)
tags = st.builds(Tag, words, words)
seconds = st.floats(0, PAST_SECONDS_MAX)
rates = st.floats(0, RATE_MAX)

blobs = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda seed, size: seed * size,
        st.binary(min_size=1, max_size=3),
        st.integers(DETACHED_BYTES_MIN - 2, DETACHED_BYTES_MIN + 2),
    ),
)
elements = st.builds(
    Element, st.integers(0, SERVERS_MAX - 1), lengths, words, st.lists(blobs, max_size=3).map(tuple)
)


def _configuration(dap, names, code, place):
    members = tuple(Server(*name) for name in names)
    if dap == "abd" or len(members) == 1:
        return Configuration("abd", members, **place)
    k, delta, backend = code
    return Configuration("ec", members, min(k, len(members) - 1), delta, backend, **place)


members = st.lists(
    st.tuples(texts, texts, texts), min_size=1, max_size=5, unique_by=lambda member: member[0]
)
backends = st.sampled_from(BACKENDS).filter(lambda backend: backend != "isa_l_rs_vand")
deltas = st.integers(1, DELTA_MAX)
places = st.integers(0, 2**63 - 1)
configurations = st.builds(
    _configuration,
    st.sampled_from(["abd", "ec"]),
    members,
    st.tuples(st.integers(1, 4), deltas, backends),
    st.fixed_dictionaries({"domain": texts, "index": places, "cluster": ids}),
)
successors = st.builds(Successor, configurations, st.sampled_from(Status))
maybe = st.none() | successors
listed = st.builds(ListedObject, texts, tags, st.booleans())
hosted = st.builds(ConfigurationReport, configurations, counts, counts, st.booleans(), maybe)
stored = st.builds(DiskUsage, counts, counts, counts, counts)
usages = st.builds(
    Usage, texts, counts, st.lists(st.builds(AskedFrom, texts, rates), max_size=3).map(tuple)
)
followed = st.builds(FollowReport, texts, texts, texts, texts)

numbers = st.integers(1, POSITION_MAX)
entries = st.lists(st.binary(max_size=20), min_size=1, max_size=4).map(tuple)
records = st.lists(
    st.builds(LogRecord, places, words, numbers, numbers, entries, words), max_size=3
).map(tuple)
row_places = st.lists(st.builds(RowPlace, numbers, places, places), max_size=3).map(tuple)

FIELDS = {
    Append: (ids, words, numbers, numbers, places, entries, st.none() | places),
    AwaitAppend: (ids, words, numbers, st.binary(max_size=SECRET_BYTES)),
    ReadLog: (
        ids,
        places,
        st.integers(0, RANGE_MAX),
        st.integers(0, READ_BYTES_MAX),
        st.booleans(),
        st.floats(0, FOLLOW_S_MAX),
    ),
    ReadEach: (ids, st.lists(places, min_size=1, max_size=4).map(tuple), st.booleans()),
    Look: (ids,),
    Trim: (ids, places),
    Seal: (ids,),
    Stand: (ids,),
    Forward: (ids, texts, places, records, places, places, st.booleans(), places, places),
    Committed: (ids, texts, places, places, places, st.booleans(), places),
    TakeBack: (ids, texts, places, places),
    GivenBack: (ids, texts, places, places, records, places, st.booleans()),
    LookRow: (ids, words, places, maybe),
    Fetch: (ids, places, maybe),
    Appended: (numbers, st.sampled_from(AppendOutcome), places, maybe),
    LogEntries: (places, entries, places, places, st.lists(texts, max_size=3).map(tuple), maybe),
    EachRead: (st.lists(st.none() | st.binary(max_size=20), max_size=4).map(tuple), maybe),
    LookDone: (st.booleans(), places, places, maybe),
    TrimDone: (st.booleans(), places, maybe),
    SealDone: (places, maybe),
    Stood: (st.booleans(), places, maybe),
    RowFound: (st.booleans(), places, row_places, st.booleans(), st.booleans(), places),
    Fetched: (places, records, places),
    GetTag: (ids, texts),
    PullElement: (ids, texts, tags, lengths, configurations),
    Finalize: (ids,),
    Where: (texts,),
    Located: (st.none() | configurations,),
    GetData: (ids, texts, st.booleans(), st.none() | tags, maybe, st.none() | tags),
    PutData: (ids, texts, tags, elements),
    GetAhead: (ids, texts, st.booleans(), st.none() | tags),
    PutAhead: (ids, texts, tags, elements, texts, counts),
    Adopt: (ids, st.lists(st.builds(ObjectVersion, texts, tags), max_size=4).map(tuple)),
    AheadReply: (st.binary(max_size=8), maybe),
    Drop: (ids, st.lists(texts, max_size=4).map(tuple)),
    QueryList: (ids, texts, maybe, st.booleans()),
    ListReply: (
        st.lists(st.builds(ListEntry, tags, st.none() | elements), max_size=4).map(tuple),
        maybe,
    ),
    ReadConfig: (ids,),
    WriteConfig: (ids, successors),
    CollectConfig: (ids, successors),
    ListObjects: (ids, texts, counts, texts, maybe),
    WatchObjects: (ids, texts, words, counts, st.none() | texts),
    ChangedObjects: (
        *(words, counts, st.none() | texts),
        *(st.lists(listed, max_size=4).map(tuple), st.booleans(), maybe),
    ),
    Introduce: (configurations,),
    Describe: (st.booleans(), st.lists(texts, max_size=3).map(tuple)),
    Scrub: (st.booleans(),),
    SetLogLevel: (texts,),
    TagReply: (tags, maybe),
    DataReply: (
        st.lists(tags, max_size=4).map(tuple),
        lengths,
        tags,
        st.none() | elements,
        maybe,
    ),
    Ack: (maybe,),
    ObjectsReply: (
        st.lists(listed, max_size=4).map(tuple),
        st.booleans(),
        maybe,
        st.none(),
        st.integers(0, 2**40),
    ),
    Refused: (st.sampled_from(Reason), texts),
    Description: (
        *(
            texts,
            texts,
            ids,
            texts,
            seconds,
            counts,
            st.lists(hosted, max_size=2).map(tuple),
            counts,
            st.none() | stored,
        ),
        *(st.none(), st.lists(usages, max_size=2).map(tuple), texts),
    ),
    ScrubReply: (st.booleans(), counts, counts, counts, counts, counts, counts),
    RequestDone: (),
    Propose: (configurations, words),
    Decided: (configurations, words),
    GetHint: (texts,),
    Hint: (st.none() | configurations,),
    TellFinalized: (configurations,),
    Undecided: (texts,),
    DescribeConsensus: (),
    ConsensusDescription: (
        texts,
        texts,
        counts,
        counts,
        counts,
        counts,
        texts,
        st.lists(followed, max_size=2).map(tuple),
    ),
}
assert set(FIELDS) == set(get_args(AnyMessage)), "a message type has no strategy"

BY_TYPE = {kind: st.builds(kind, words, *fields) for kind, fields in FIELDS.items()}
messages = st.one_of(*BY_TYPE.values())
batches = st.lists(messages, max_size=6)
