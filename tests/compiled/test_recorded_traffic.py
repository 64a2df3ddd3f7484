"""Recorded traffic, given to the compiled core and to the Python path.

Both send the same bytes, and know the same afterwards.
"""

from collections import Counter
from contextlib import suppress
from functools import cache
from types import SimpleNamespace

import pytest

from ares.compiled import CORE, fast_path
from ares.model.codec import decode_requests
from ares.model.configuration import Status
from ares.model.errors import BadMessage
from ares.model.messages import (
    DELETED_LENGTH,
    Ack,
    CollectConfig,
    DataReply,
    Describe,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PullElement,
    PutData,
    ReadConfig,
    Reason,
    Refused,
    TagReply,
    WriteConfig,
)
from ares.replica.configuration_state import INLINE_BYTES_MAX
from tests.compiled import recorded_clients, recorded_servers
from tests.compiled.recorded_clients import Twin
from tests.compiled.recorded_servers import answers, holds
from tests.compiled.traffic import record

pytestmark = pytest.mark.skipif(CORE is None, reason="nothing is compiled")

KINDS = {
    "usual": {},
    "recorded without the core": {"core": False},
    "keys": {"keyed": True},
    "fsync": {"durable": True},
}

TOLD_BY = (TagReply, DataReply, Ack)
"""Replies that announce a successor."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Record each kind once."""
    return cache(lambda kind: record(tmp_path_factory.mktemp("recorded"), **KINDS[kind]))


@pytest.fixture(params=KINDS)
def recording(request, recordings):
    return recordings(request.param)


@pytest.fixture
def courses(recordings):
    """Return all courses: some wanted events need a meeting of two rare events."""
    return [course for kind in KINDS for course in recordings(kind).courses]


@pytest.fixture
def _still(monkeypatch):
    """Make descriptions of a process the same at any time."""
    monkeypatch.setattr(
        "ares.server.storage_server.time", SimpleNamespace(perf_counter=lambda: 0.0)
    )
    monkeypatch.setattr("ares.server.storage_server.memory_bytes", lambda: 0)


@pytest.mark.usefixtures("_still")
def test_recorded_batches_are_answered_as_recorded(recording):
    reads = quick = 0
    for course in recording.courses:
        compiled, pure = course.half(True), course.half(False)
        sent = recorded_servers.replay(course, compiled, pure)
        assert answers(sent) == answers(course.sent), "it is not what was recorded"
        assert holds(pure.replica) == recording.held[course], "it is not what was recorded"
        reads, quick = reads + len(course.reads), quick + compiled.quick
        assert pure.quick == 0
    assert reads > 500
    assert quick > reads / 3, "the core took too little for this to say anything"


def test_recorded_replies_give_the_recorded_results(recording):
    operations = small = quick = letters = 0
    for session in recording.sessions:
        compiled, pure = Twin(session, fast_path()), Twin(session)
        recorded_clients.replay(session, compiled, pure)
        operations, small, quick = (
            operations + len(pure.ends),
            small + compiled.small,
            quick + compiled.quick,
        )
        letters += sum(len(event[1]) for event in session.course if event[0] == "post")
        assert (pure.small, pure.quick) == (0, 0)
    assert operations > 400
    assert small > operations / 3, "the core began too little for this to say anything"
    assert quick > letters / 5, "the core sent too little for this to say anything"


@pytest.mark.usefixtures("_still")
def test_requests_of_every_kind_were_recorded(courses):
    requests = [request for course in courses for _, request in _requests(course)]
    assert {type(request) for request in requests} >= {
        *(
            GetTag,
            GetData,
            PutData,
            ReadConfig,
            WriteConfig,
            ListObjects,
            Introduce,
            Describe,
            CollectConfig,
            PullElement,
        )
    }
    puts = [request.element for request in requests if isinstance(request, PutData)]
    assert any(element.size > INLINE_BYTES_MAX for element in puts)
    assert any(element.length == DELETED_LENGTH for element in puts)
    assert any(
        isinstance(request, GetData) and request.successor is not None for request in requests
    ), "a mover's"
    assert any(isinstance(request, GetData) and request.held is not None for request in requests), (
        "of who knows the value"
    )
    for kind in (GetData, GetTag):
        calls = Counter(
            (sender, request.call, request.object)
            for course in courses
            for sender, request in _requests(course)
            if type(request) is kind
        )
        assert max(calls.values()) > 1, f"no {kind.__name__} was sent again"


def _requests(course):
    """Return the requests with their senders, without invalid batches."""
    for sender, batches in course.reads:
        for frames in batches:
            with suppress(BadMessage):
                yield from ((sender, request) for request in decode_requests(frames))


@pytest.mark.usefixtures("_still")
def test_replies_of_every_kind_were_recorded(courses):
    replies = [
        reply for course in courses for said in answers(course.sent).values() for reply in said
    ]
    told = {
        (type(reply), reply.successor.status)
        for reply in replies
        if isinstance(reply, TOLD_BY) and reply.successor is not None
    }
    assert told >= {(kind, Status.PENDING) for kind in TOLD_BY}
    assert {status for _, status in told} == {Status.PENDING, Status.FINALIZED}
    assert any(
        isinstance(reply, DataReply)
        and reply.element is not None
        and reply.element.size > INLINE_BYTES_MAX
        for reply in replies
    )
    refused = {reply.reason for reply in replies if isinstance(reply, Refused)}
    assert refused >= {Reason.NOT_BROUGHT, Reason.NOT_AUTHORIZED, Reason.UNKNOWN_CONFIGURATION}
    assert all(("disk" in course.events) is course.journaled for course in courses)


def test_all_that_happens_to_sessions_was_recorded(recordings):
    happened = {
        event[0]
        for kind in KINDS
        for session in recordings(kind).sessions
        for event in session.course
    }
    assert happened >= {
        "open",
        "begin",
        "cancel",
        "post",
        "receive_frames",
        "resume",
        "tick",
        "close",
    }


class _Miswritten:
    """A server's core that changes the last byte of a reply."""

    def __init__(self, core) -> None:
        self._core = core

    def serve(self, *came):
        served = self._core.serve(*came)
        if served is None or served.reply is None:
            return served
        said = {name: getattr(served, name) for name in dir(served) if not name.startswith("_")}
        return SimpleNamespace(
            **said | {"reply": served.reply[:-1] + bytes([served.reply[-1] ^ 1])}
        )


class _Misposted:
    """A client's core that changes the last byte of a letter."""

    def __init__(self) -> None:
        self._core = fast_path()

    def __getattr__(self, name):
        return getattr(self._core, name)

    def take(self, letters, sent) -> None:
        self._core.take(letters, sent)
        for server, letter in letters.items():
            if isinstance(letter, bytes):
                letters[server] = letter[:-1] + bytes([letter[-1] ^ 1])


@pytest.mark.usefixtures("_still")
def test_a_byte_of_a_reply_is_noticed(recordings):
    course = recordings("usual").courses[0]
    with pytest.raises(AssertionError):
        recorded_servers.replay(course, course.half(True, _Miswritten), course.half(False))


def test_a_byte_of_a_request_is_noticed(recordings):
    session = max(recordings("usual").sessions, key=lambda session: len(session.course))
    with pytest.raises(AssertionError, match="not what was recorded"):
        recorded_clients.replay(session, Twin(session, _Misposted()), Twin(session))
