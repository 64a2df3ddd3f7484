"""Names that begin with NUL, in messages from a key of the role write.

No message stores an object under such a name (docs/security.md, `write`). A foreign client (pyzmq)
speaks to a real server over CURVE. The messages come from their types: every request, and every
text in the request, with each of the names.
"""

import asyncio
import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from ares.cluster.cluster_keys import authorise
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.element import Element, sealed
from ares.model.identity import CallId, ClientId, ObjectName, ServerId
from ares.model.messages import DELETED_LENGTH, REQUEST_KINDS, ListObjects, PutData, Reason
from ares.model.tag import Tag
from ares.platform.environment import PURE_VARIABLE
from ares.testing.torture.torture_cluster import TortureCluster

from .out_of_bounds import message
from .stranger import ACK, DESCRIBE, DESCRIPTION, REFUSED

pytestmark = pytest.mark.process

RESERVED_NAMES = ["\0mine", "\0", "\0file", "\0domain/x", "\0follow/x", "\0\0file/x"]
WRITERS_NAMES = ["\0file/x", "\0block/x", "\0mark/x", "\0mirror/x"]
PATIENCE_MS = 60_000
OBJECTS_REPLY = 35


class KeyedStranger:
    """A client of the library libzmq, with the key of ``name``."""

    def __init__(self, settings: Settings, name: str) -> None:
        security, server = settings.security, settings.servers[ServerId("s0")]
        assert security is not None
        key = security.client_key(str(security.secret_path(name)))
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.curve_secretkey = key.secret
        self._socket.curve_publickey = bytes.fromhex(key.public)
        self._socket.curve_serverkey = bytes.fromhex(server.public_key)
        self._socket.rcvtimeo, self._socket.linger = PATIENCE_MS, 0
        self._socket.connect(f"tcp://{server.address}")

    def __enter__(self) -> "KeyedStranger":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *messages: Any) -> None:
        """Send a batch. Parts of elements are in the batch, not beside it."""
        self._socket.send(b"\x01" + msgspec.msgpack.encode(messages))

    def answer(self) -> list[Any]:
        """Wait for the next batch of answers."""
        return msgspec.msgpack.decode(self._socket.recv_multipart()[0][1:])

    def ask(self, request: Any) -> list[Any]:
        """Return the answer to ``request``."""
        self.send(request)
        call = msgspec.to_builtins(request)[1]
        return next(each for each in iter(lambda: self.answer()[0], None) if each[1] == call)


class OneServer:
    """A server with keys; ``settings`` is the cluster."""

    def __init__(self, home: Path) -> None:
        plan = InitPlan(
            1, 1, base_port=0, security="curve", allow_no_faults=True, durability="memory"
        )
        self.settings = create(home, plan)
        assert self.settings.security is not None
        authorise(self.settings.security, "writer", "write")
        self.cluster = TortureCluster(self.settings, None)
        asyncio.run(self.cluster.start())

    def put(self, name: str, length: int = 1) -> PutData:
        """Return a put that is valid for a permitted role; without a length, a deletion."""
        tag, data = Tag(1, ClientId(77)), (b"x",) if length >= 0 else ()
        initial = self.settings.initial.id
        element: Element = sealed(initial, ObjectName(name), tag, 0, length, data)
        return PutData(CallId(next(calls)), initial, ObjectName(name), tag, element)

    def reserved(self, stranger: KeyedStranger) -> list[str]:
        """Return the reserved names in the server's list of objects."""
        request = ListObjects(CallId(next(calls)), self.settings.initial.id, "", 100, "\0")
        kind, _, listed, *_ = stranger.ask(request)
        assert kind == OBJECTS_REPLY
        return [each[0] for each in listed]


calls = itertools.count(1)


@pytest.fixture(scope="module", params=["core", "Python"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Python":
            patch.setenv(PURE_VARIABLE, "1")
        server = OneServer(tmp_path_factory.mktemp("reserved") / "c")
    yield server
    assert server.cluster.ended() == []
    server.cluster.stop()


def with_text(made: Any, name: str) -> Iterator[Any]:
    """Yield copies of a message, in each of which another text is ``name``."""
    for index, value in enumerate(made):
        if isinstance(value, str):
            yield [*made[:index], name, *made[index + 1 :]]
        elif isinstance(value, list):
            for changed in with_text(value, name):
                yield [*copy.deepcopy(made[:index]), changed, *copy.deepcopy(made[index + 1 :])]


def test_no_request_of_a_writer_stores_a_reserved_name(server: OneServer) -> None:
    """Each message is in a separate batch, and the server continues to answer."""
    sent: list[str] = []
    with KeyedStranger(server.settings, "writer") as writer:
        for kind in REQUEST_KINDS:
            for name in RESERVED_NAMES:
                for made in with_text(message(kind.__name__), name):
                    made[1] = next(calls)
                    if isinstance(made[2], bytes):
                        made[2] = server.settings.initial.id
                    writer.send(made)
                    sent.append(kind.__name__)
            writer.send([DESCRIBE, last := next(calls), True])
            while not any(each[:2] == [DESCRIPTION, last] for each in writer.answer()):
                pass
        assert {"PutData", "GetTag", "GetData", "PullElement", "ListObjects", "Where"} <= set(sent)
        assert server.reserved(writer) == []


@pytest.mark.parametrize("length", [1, DELETED_LENGTH], ids=["write", "delete"])
@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a batch"])
def test_a_writer_puts_its_own_names_only(server: OneServer, length: int, together: bool) -> None:
    """An otherwise valid put is refused for the name, in any batch."""
    with KeyedStranger(server.settings, "writer") as writer:
        for name in RESERVED_NAMES:
            put = server.put(name, length)
            beside = [server.put("key"), server.put("\0file/x")] if together else []
            writer.send(*beside[:1], put, *beside[1:])
            answers: list[Any] = []
            while len(answers) < 1 + len(beside):
                answers += writer.answer()
            said = {each[1]: each for each in answers}
            assert said[put.call][::2] == [REFUSED, Reason.NOT_AUTHORIZED]
            assert "takes the role reconfigure" in said[put.call][3]
            assert [said[each.call][0] for each in beside] == [ACK] * len(beside)
        assert set(server.reserved(writer)) <= {"\0file/x"}


def test_reserved_names_are_for_the_roles_that_own_them(server: OneServer) -> None:
    """Parts of files and notes of mirrors are a writer's; every name is an admin's."""
    with KeyedStranger(server.settings, "writer") as writer:
        assert [writer.ask(server.put(name))[0] for name in WRITERS_NAMES] == [ACK] * 4
    with KeyedStranger(server.settings, "admin") as admin:
        assert [admin.ask(server.put(name))[0] for name in RESERVED_NAMES] == [ACK] * 6
        assert set(server.reserved(admin)) == {*WRITERS_NAMES, *RESERVED_NAMES}
