"""One message of every kind, with every optional part present."""

from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import (
    Ack,
    AnyMessage,
    CollectConfig,
    ConsensusDescription,
    DataReply,
    Decided,
    Describe,
    DescribeConsensus,
    Description,
    Done,
    Element,
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

SAMPLES: list[AnyMessage] = [
    GetTag(_CALL, _C, _KEY),
    GetData(_CALL, _C, _KEY, True, _TAG, _SUCCESSOR),
    PutData(_CALL, _C, _KEY, _TAG, _ELEMENT),
    PutData(_CALL, _C, _KEY, _TAG, _LARGE),
    ReadConfig(_CALL, _C),
    WriteConfig(_CALL, _C, _SUCCESSOR),
    CollectConfig(_CALL, _C, _SUCCESSOR),
    ListObjects(_CALL, _C, "after", 10, "prefix", _SUCCESSOR),
    Introduce(_CALL, _CONFIGURATION),
    Describe(_CALL, True),
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
