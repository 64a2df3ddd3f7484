"""One message of every kind, with every optional part present."""

from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ConfigurationId, DomainName, ObjectName, ServerId
from ares.model.log_messages import (
    Append,
    Appended,
    AppendOutcome,
    Committed,
    EachRead,
    Fetch,
    Fetched,
    Forward,
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
    Trim,
    TrimDone,
)
from ares.model.messages import (
    Ack,
    AnyMessage,
    AskedFrom,
    Bring,
    CollectConfig,
    ConsensusDescription,
    DataReply,
    Decided,
    Describe,
    DescribeConsensus,
    Description,
    Done,
    Element,
    Followed,
    GetData,
    GetHint,
    GetTag,
    Hint,
    Hosted,
    Introduce,
    Listed,
    ListObjects,
    ObjectsReply,
    Propose,
    PutData,
    ReadConfig,
    Reason,
    Refused,
    Scrub,
    ScrubReply,
    SetLogLevel,
    Stored,
    TagReply,
    TellFinalized,
    Undecided,
    Usage,
    WriteConfig,
)
from ares.model.tag import Tag

_CALL = CallId(2**63)
_C = ConfigurationId(bytes(range(16)))
_KEY = ObjectName("a key \N{SNOWMAN}")
_TAG = Tag(7, ClientId(2**64 - 1))
_CONFIGURATION = Configuration.ec([Server(ServerId(f"s{i}"), f"10.0.0.{i}:7000", "ab" * 16) for i in range(5)], k=3).at(DEFAULT_DOMAIN, 4)
_SUCCESSOR = Successor(_CONFIGURATION, Status.FINALIZED)
_ELEMENT = Element(3, 12, 2**64 - 1, (b"\x00\xffdata",))
_LARGE = Element(4, 99, 5, (bytes(range(256)) * 64, b"second part"))

_RECORD = LogRecord(7, ClientId(9), 3, 2, (b"one", b""), 2**63)

_USAGE = Usage(DomainName("photos"), 2**40, (AskedFrom("nantes", 2.5), AskedFrom("rennes", 0.1)))

SINCE: list[AnyMessage] = [
    Describe(_CALL, True, (DomainName("photos"),)),
    Description(_CALL, ServerId("s0"), "ab" * 16, b"c" * 16, "1.0", 1.5, 10, (), usage=(_USAGE,)),
    ConsensusDescription(_CALL, ServerId("r0"), "r1", 3, 4, 2, 3, "watches", (Followed(DomainName("photos"), "nantes", "here", "why"),)),
]
"""With fields that were added since a release."""

SAMPLES: list[AnyMessage] = [
    *SINCE,
    GetTag(_CALL, _C, _KEY),
    Bring(_CALL, _C, _KEY, _TAG, 5, _CONFIGURATION),
    GetData(_CALL, _C, _KEY, True, _TAG, _SUCCESSOR),
    PutData(_CALL, _C, _KEY, _TAG, _ELEMENT),
    PutData(_CALL, _C, _KEY, _TAG, _LARGE),
    ReadConfig(_CALL, _C),
    WriteConfig(_CALL, _C, _SUCCESSOR),
    CollectConfig(_CALL, _C, _SUCCESSOR),
    ListObjects(_CALL, _C, "after", 10, "prefix", _SUCCESSOR),
    Introduce(_CALL, _CONFIGURATION),
    Describe(_CALL, True),
    Append(_CALL, _C, ClientId(9), 3, 2, 1, (b"one", b""), 7),
    ReadLog(_CALL, _C, 7, 10, 1000, True, 2.0),
    ReadEach(_CALL, _C, (7, 3), True),
    Look(_CALL, _C),
    Trim(_CALL, _C, 7),
    Seal(_CALL, _C),
    Stand(_CALL, _C),
    Forward(_CALL, _C, ServerId("s0"), 7, (_RECORD,), 5),
    Committed(_CALL, _C, ServerId("s1"), 7, 8, 5, True),
    LookRow(_CALL, _C, ClientId(9), 3, _SUCCESSOR),
    Fetch(_CALL, _C, 7, _SUCCESSOR),
    Appended(_CALL, 3, AppendOutcome.DONE, 7, _SUCCESSOR),
    LogEntries(_CALL, 7, (b"one", b""), 9, 5, (ServerId("s0"),), _SUCCESSOR),
    EachRead(_CALL, (b"one", None, b""), _SUCCESSOR),
    LookDone(_CALL, True, 9, 8, _SUCCESSOR),
    TrimDone(_CALL, True, 9, _SUCCESSOR),
    SealDone(_CALL, 9, _SUCCESSOR),
    Stood(_CALL, True, 9, _SUCCESSOR),
    RowFound(_CALL, True, 3, (RowPlace(3, 7, 9),), True, False, 5),
    Fetched(_CALL, 7, (_RECORD,), 5),
    Scrub(_CALL, True),
    SetLogLevel(_CALL, "debug"),
    TagReply(_CALL, _TAG, _SUCCESSOR),
    DataReply(_CALL, (_TAG, Tag(6, ClientId(1))), 12, Tag(2, ClientId(3)), _ELEMENT, _SUCCESSOR),
    DataReply(_CALL, (_TAG,), 12, Tag(2, ClientId(3)), _LARGE, None),
    Ack(_CALL, _SUCCESSOR),
    ObjectsReply(_CALL, (Listed(_KEY, _TAG, True),), True, _SUCCESSOR),
    Refused(_CALL, Reason.IDENTITY, "why"),
    Description(_CALL, ServerId("s0"), "ab" * 16, b"c" * 16, "1.0", 1.5, 10, (Hosted(_CONFIGURATION, 1, 2, False, _SUCCESSOR),)),
    Description(_CALL, ServerId("s0"), "ab" * 16, b"c" * 16, "1.0", 1.5, 10, (), 7, Stored(8, 6, 1, 2, True)),
    ScrubReply(_CALL, True, 1, 2, 3, 4, 5, 6),
    Done(_CALL),
    Propose(_CALL, _CONFIGURATION, ClientId(9)),
    Decided(_CALL, _CONFIGURATION, ClientId(9)),
    GetHint(_CALL, DEFAULT_DOMAIN),
    Hint(_CALL, _CONFIGURATION),
    TellFinalized(_CALL, _CONFIGURATION),
    Undecided(_CALL, "no leader"),
    DescribeConsensus(_CALL),
    ConsensusDescription(_CALL, ServerId("r0"), "r1", 3, 4, 2, 3),
]
