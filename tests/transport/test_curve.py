"""CurveZMQ of this project, without I/O: admission, and rejection of forged messages.

Messages that were changed, repeated or made up on the way are never believed.
"""

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.net.zmtp.curve import METADATA_BYTES_MAX, CurveClient, CurveServer
from ares.net.zmtp.curve_ciphers import CurveCipher, GcmCipher, has_gcm
from ares.net.zmtp.frames import (
    DEALER,
    FRAMES_AT_ONCE,
    GREETING_BYTES,
    ROUTER,
    SCRATCH_BYTES,
    FrameParser,
    NotAdmitted,
    NotZmtp,
    TurnedAway,
    WrongMechanism,
    framed,
    properties,
    property_of,
)
from ares.platform.interpreter import python
from ares.security.keys import SecretKey

from .test_zmtp import BAD_METADATA, SIZES, feed, opening

SERVER, CLIENT, STRANGER = (SecretKey(bytes([number]) * 32) for number in (1, 2, 3))


needs_gcm = pytest.mark.skipif(
    not has_gcm(), reason="this processor has no instructions for AES-256-GCM"
)


@pytest.fixture(
    autouse=True,
    scope="module",
    params=["box", pytest.param("gcm", marks=needs_gcm)],
)
def cipher(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test of this file with either cipher."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr("ares.net.zmtp.curve.has_gcm", lambda: request.param == "gcm")
        yield


class Side:
    """An end of a connection: bytes in, bytes out."""

    def __init__(self, kind: bytes, handshake: CurveClient | CurveServer) -> None:
        self.handshake = handshake
        self.incoming = FrameParser(kind, memoryview(bytearray(SCRATCH_BYTES)), handshake)

    def hear(self, data: bytes, pieces: Sequence[int] = ()) -> bytes:
        """Return the answer to `data`, which must complete no message."""
        assert feed(self.incoming, data, pieces) == []
        answers, self.incoming.answers = self.incoming.answers, []
        return b"".join(answers)

    def seal(self, *messages: Sequence[bytes]) -> bytes:
        cipher = self.incoming.cipher
        assert cipher is not None
        return b"".join(bytes(buffer) for message in messages for buffer in cipher.seal(message))


def client_of(
    server_key: str = SERVER.public, secret: SecretKey = CLIENT, said: bytes = b""
) -> Side:
    return Side(DEALER, CurveClient(secret, server_key, said or properties(DEALER)))


def server_of(
    admits: Callable[[str], bool] = lambda key: key == CLIENT.public, said: bytes = b""
) -> Side:
    return Side(ROUTER, CurveServer(SERVER, admits, said or properties(ROUTER)))


def shake(client: Side, server: Side) -> None:
    initiate = client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
    assert client.hear(server.hear(initiate)) == b""


def met() -> tuple[Side, Side]:
    client, server = client_of(), server_of()
    shake(client, server)
    assert client.incoming.ready
    assert server.incoming.ready
    return client, server


def test_a_known_client_is_let_in_and_its_key_is_known() -> None:
    client, server = met()
    assert (server.incoming.client_key, client.incoming.client_key) == (CLIENT.public, "")


MESSAGES = st.lists(st.lists(SIZES, min_size=1, max_size=4), min_size=1, max_size=3)


@settings(max_examples=50, deadline=None)
@given(MESSAGES, st.lists(st.integers(1, 70_000), max_size=40), st.integers(0, 2**32))
def test_messages_come_out_as_they_went_in_whatever_the_pieces(
    shapes: list[list[int]], pieces: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    messages = [[rng.randbytes(size) for size in shape] for shape in shapes]
    client, server = met()
    for sender, receiver in ((client, server), (server, client)):
        sealed = sender.seal(*messages)
        assert not any(
            frame in sealed for message in messages for frame in message if len(frame) > 8
        )
        assert feed(receiver.incoming, sealed, pieces) == messages
        assert receiver.incoming.held_bytes == 0


@pytest.mark.parametrize("said", BAD_METADATA.values(), ids=BAD_METADATA)
def test_what_is_no_metadata_ends_the_handshake_of_either_side(said: bytes) -> None:
    client, server = client_of(said=properties(DEALER) + said), server_of()
    with pytest.raises(NotZmtp, match="propert"):
        server.hear(
            client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
        )
    assert not server.incoming.ready
    client, server = client_of(), server_of(said=properties(ROUTER) + said)
    initiate = client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
    with pytest.raises(NotZmtp, match="propert"):
        client.hear(server.hear(initiate))
    assert not client.incoming.ready


def test_the_same_message_never_looks_the_same_twice() -> None:
    client, server = met()
    sealed = {client.seal([b"message"]) for _ in range(10)} | {
        server.seal([b"message"]) for _ in range(10)
    }
    assert len(sealed) == 20
    assert len({message[-24:] for message in sealed}) == 20


def test_a_ping_is_answered_in_secret() -> None:
    client, server = met()
    cipher = client.incoming.cipher
    assert cipher is not None
    answer = server.hear(cipher.seal_command(b"\x04PING\x00\x0acontext"))
    assert answer
    assert b"\x04PONGcontext" not in answer
    assert client.hear(answer) == b""


# -- the choice of the cipher ----------------------------------------------------------------------


def end(kind: bytes, has: bool, *said: bytes) -> Side:
    """Return an end on a processor with, or without, the instructions for AES."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr("ares.net.zmtp.curve.has_gcm", lambda: has)
        make = client_of if kind == DEALER else server_of
        return make(said=b"".join((properties(kind), *said)))


def ciphers(client_has: bool, server_has: bool) -> list[type]:
    """Return the ciphers of both ends after a handshake."""
    client, server = end(DEALER, client_has), end(ROUTER, server_has)
    shake(client, server)
    sealed = client.seal([b"message"])
    assert feed(server.incoming, sealed) == [[b"message"]]
    return [type(side.incoming.cipher) for side in (client, server)]


@needs_gcm
def test_aes_is_used_if_both_ends_have_it_and_otherwise_the_box() -> None:
    assert ciphers(True, True) == [GcmCipher, GcmCipher]
    for has in ((True, False), (False, True), (False, False)):
        assert ciphers(*has) == [CurveCipher, CurveCipher]


def test_a_fresh_process_knows_its_processor() -> None:
    asked = "from ares.net.zmtp.curve_ciphers import has_gcm; print(has_gcm())"
    told = subprocess.run(python("-c", asked), capture_output=True, text=True, check=True)
    assert told.stdout == f"{has_gcm()}\n"


def test_a_frame_that_libsodium_does_not_seal_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = met()
    for sealing in ("_box", "_encrypt"):
        monkeypatch.setattr(f"ares.net.zmtp.curve_ciphers.{sealing}", lambda *_: -1)
    with pytest.raises(RuntimeError, match="not sent"):
        client.seal([b"secret"])


def test_many_small_frames_at_once_are_opened_in_several_turns() -> None:
    client, server = met()
    sealed = client.seal(*([b"%d" % number] for number in range(2 * FRAMES_AT_ONCE)))
    opened = feed(server.incoming, sealed)
    while server.incoming.behind:
        opened += server.incoming.filled(0)
    assert opened == [[b"%d" % number] for number in range(2 * FRAMES_AT_ONCE)]


@pytest.mark.parametrize("named", [b"AES-256-GCM", b"aes-128-gcm", b""])
def test_a_server_takes_no_offer_of_another_cipher(named: bytes) -> None:
    client = end(DEALER, False, property_of(b"Ares-Cipher", named))
    server = end(ROUTER, True)
    shake(client, server)
    assert type(server.incoming.cipher) is type(client.incoming.cipher) is CurveCipher


def test_a_client_uses_no_cipher_that_it_did_not_offer() -> None:
    client = end(DEALER, False)
    server = end(ROUTER, False, property_of(b"Ares-Cipher", b"aes-256-gcm"))
    with pytest.raises(NotZmtp, match="not offered"):
        shake(client, server)
    assert client.incoming.cipher is None


@needs_gcm
def test_another_implementation_of_the_standards_opens_frames_of_aes() -> None:
    client, server = end(DEALER, True), end(ROUTER, True)
    shake(client, server)
    assert isinstance(client.handshake, CurveClient)
    for sender, name in ((client, b"CurveZMQMESSAGEC"), (server, b"CurveZMQMESSAGES")):
        derive = HKDF(SHA256(), 32, salt=None, info=b"ares AES-256-GCM " + name)
        key = AESGCM(derive.derive(client.handshake._key))
        counts = []
        for size in (0, 1, 15, 16, 17, 100, 5000):
            frame = sender.seal([b"x" * size])
            body = frame[2:] if frame[0] == 0 else frame[9:]
            command, count, sealed = body[:8], body[8:16], body[16:]
            assert command == b"\x07MESSAGE"
            assert key.decrypt(bytes(4) + count, sealed, None) == b"\0" + b"x" * size
            counts.append(count)
        assert counts == sorted(set(counts))


# -- clients that are not admitted -----------------------------------------------------------------


def test_an_unknown_client_is_told() -> None:
    client, server = client_of(secret=STRANGER), server_of()
    initiate = client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
    with pytest.raises(NotAdmitted) as refused:
        server.hear(initiate)
    with pytest.raises(TurnedAway) as turned_away:
        client.hear(refused.value.answer)
    assert turned_away.value.code == "400"
    assert not server.incoming.ready
    assert not client.incoming.ready


def test_a_server_without_a_proven_key_cannot_refuse_a_client() -> None:
    """Any process can send an ERROR; a server without a shown key has no key to refuse."""
    client = client_of()
    with pytest.raises(NotZmtp, match="before it has shown to own the server's key") as refused:
        client.hear(server_of().handshake.opening() + framed(b"\x05ERROR\x03400"))
    assert not isinstance(refused.value, TurnedAway)


def test_a_server_that_does_not_own_the_key_learns_nothing() -> None:
    client, server = client_of(server_key=STRANGER.public), server_of()
    with pytest.raises(NotZmtp, match="the owner of another key"):
        server.hear(client.handshake.opening())


def test_a_server_key_that_is_no_key_is_refused() -> None:
    with pytest.raises(NotZmtp, match="a public key that is none"):
        client_of(server_key="00" * 32).handshake.opening()


def refusal_reason(change: Callable[[CurveClient], None]) -> str:
    """Return why the server hangs up on a client with this fault after HELLO."""
    asked: list[str] = []
    client, server = client_of(), server_of(lambda key: bool(asked.append(key)) or True)
    welcome = server.handshake.opening() + server.hear(client.handshake.opening())
    assert isinstance(client.handshake, CurveClient)
    change(client.handshake)
    with pytest.raises(NotZmtp) as refused:
        server.hear(client.hear(welcome))
    assert asked == []
    assert not server.incoming.ready
    return str(refused.value)


def test_no_client_can_show_the_key_of_another() -> None:
    claimed = SecretKey(STRANGER.secret)
    claimed.public = CLIENT.public
    assert "a key that the client does not own" in refusal_reason(
        lambda client: setattr(client, "_secret", claimed)
    )


def test_a_vouch_holds_for_one_server_and_one_connection() -> None:
    """Otherwise a server could use a client's vouch to connect elsewhere as that client."""
    assert "a vouch for another connection" in refusal_reason(
        lambda client: setattr(client, "_server", bytes.fromhex(STRANGER.public))
    )
    assert "a vouch for another connection" in refusal_reason(
        lambda client: setattr(client, "_public", bytes.fromhex(STRANGER.public))
    )


def test_a_cookie_holds_for_one_connection() -> None:
    client, server, other = client_of(), server_of(), server_of()
    initiate = client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
    other.hear(client.handshake.opening())
    with pytest.raises(NotZmtp, match="a cookie of another connection"):
        other.hear(initiate)


def test_a_recorded_handshake_is_worth_nothing() -> None:
    client, server = client_of(), server_of()
    hello = client.handshake.opening()
    initiate = client.hear(server.handshake.opening() + server.hear(hello))
    server.hear(initiate)
    again = server_of()
    again.hear(hello)
    with pytest.raises(NotZmtp):
        again.hear(initiate)


@pytest.mark.parametrize("cut", ["hello", "initiate"])
def test_a_cut_handshake_admits_no_client(cut: str) -> None:
    asked: list[str] = []
    client, server = client_of(), server_of(lambda key: bool(asked.append(key)) or True)
    hello = client.handshake.opening()
    if cut == "hello":
        assert server.hear(hello[:-1]) == b""
    else:
        assert server.hear(client.hear(server.handshake.opening() + server.hear(hello))[:-1]) == b""
    assert not server.incoming.ready
    assert asked == []


# -- invalid handshakes ----------------------------------------------------------------------------


def greeted() -> Side:
    server = server_of()
    server.hear(client_of().handshake.opening()[:GREETING_BYTES])
    return server


@pytest.mark.parametrize(
    "sent",
    [
        framed(b"\x05READY" + properties(DEALER)),
        framed(b"\x05HELLO\x01\x00" + bytes(192)),
        framed(b"\x05HELLO\x02\x00" + bytes(192)),
        framed(b"\x05HELLO"),
        framed(b"\x08INITIATE" + bytes(300)),
        framed(b"\x05ERROR\x03400"),
        framed(b""),
        b"\x00\x05early",
        b"\x06" + (8192).to_bytes(8, "big"),
        b"\x06" + (1 << 40).to_bytes(8, "big"),
        b"\x05\x01x",
    ],
)
def test_what_is_no_handshake_is_hung_up_on(sent: bytes) -> None:
    with pytest.raises(NotZmtp):
        greeted().hear(sent)


def test_a_peer_without_keys_is_told_apart() -> None:
    with pytest.raises(WrongMechanism, match="every process and client has a key"):
        server_of().hear(opening(DEALER))
    with pytest.raises(WrongMechanism, match="'NULL'"):
        client_of().hear(opening(ROUTER))


def test_a_client_with_too_much_metadata_is_disconnected() -> None:
    long = (
        properties(DEALER)
        + b"\x01x"
        + METADATA_BYTES_MAX.to_bytes(4, "big")
        + bytes(METADATA_BYTES_MAX)
    )
    client, server = client_of(said=long), server_of()
    initiate = client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
    with pytest.raises(NotZmtp, match="INITIATE"):
        server.hear(initiate)
    client, server = client_of(), server_of(said=long)
    initiate = client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
    with pytest.raises(NotZmtp, match="READY"):
        client.hear(server.hear(initiate))


def test_a_socket_that_does_not_fit_is_hung_up_on() -> None:
    client, server = client_of(said=properties(b"PUB")), server_of()
    initiate = client.hear(server.handshake.opening() + server.hear(client.handshake.opening()))
    with pytest.raises(NotZmtp, match="socket of type"):
        server.hear(initiate)
    assert not server.incoming.ready


# -- forged messages -------------------------------------------------------------------------------


def test_nothing_is_taken_twice_or_in_another_order() -> None:
    client, server = met()
    first, second = (client.seal([name]) for name in (b"1", b"2"))
    assert feed(server.incoming, first) == [[b"1"]]
    assert feed(server.incoming, second) == [[b"2"]]
    for old in (first, second):
        with pytest.raises(NotZmtp, match="before, or out of order"):
            feed(server.incoming, old)


def test_no_count_follows_the_last_one() -> None:
    _, server = met()
    cipher = server.incoming.cipher
    assert cipher is not None
    cipher._received = 2**64 - 1
    frame = b"\x07MESSAGE" + bytes(8) + bytes(17)
    with pytest.raises(NotZmtp, match="out of order"):
        feed(server.incoming, bytes((0, len(frame))) + frame)


def test_the_head_of_a_message_never_comes_with_the_content_of_another() -> None:
    client, server = met()
    cipher = client.incoming.cipher
    assert cipher is not None
    first, second = (list(cipher.seal([b"head", number])) for number in (b"1", b"2"))
    with pytest.raises(NotZmtp, match="after a missing one"):
        feed(server.incoming, bytes(first[0] + second[1]))


def test_what_a_side_sent_is_not_taken_from_the_other() -> None:
    client, server = met()
    # the counts of both sides are equal then
    assert feed(client.incoming, server.seal([b"message"])) == [[b"message"]]
    with pytest.raises(NotZmtp, match="not sealed by the peer"):
        feed(client.incoming, client.seal([b"message"]))
    other, _ = met()
    with pytest.raises(NotZmtp, match="not sealed by the peer"):
        feed(server.incoming, other.seal([b"message"]))


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x05plain",
        framed(b"\x05READY" + properties(DEALER)),
        b"\x00" + b"\x18\x07MESSAGE" + bytes(16),
        b"\x00\x00",
    ],
)
def test_nothing_is_taken_that_is_not_sealed(sent: bytes) -> None:
    _, server = met()
    with pytest.raises(NotZmtp):
        feed(server.incoming, sent)


def test_a_large_part_is_not_copied_and_a_large_header_is_bytes() -> None:
    client, server = met()
    sent = [bytes(2 * SCRATCH_BYTES), b"small", b"p" * 2 * SCRATCH_BYTES]
    side, sealed, messages = server.incoming, client.seal(sent), []
    while sealed:
        count = min(len(sealed), len(side.room()))
        side.room()[:count] = sealed[:count]
        messages += side.filled(count)
        sealed = sealed[count:]
    [found] = messages
    assert found == sent
    assert [type(frame) for frame in found] == [bytes, bytes, memoryview]
    assert memoryview(found[2]).readonly


def test_a_large_frame_that_was_changed_is_not_taken() -> None:
    for place in (-1, -17, SCRATCH_BYTES, 26):
        client, server = met()
        sealed = bytearray(client.seal([bytes(3 * SCRATCH_BYTES)]))
        sealed[place] ^= 1
        with pytest.raises(NotZmtp, match="not sealed by the peer"):
            feed(server.incoming, bytes(sealed))


def flipped(data: bytes, at: float, bit: int) -> bytes:
    place = int(at * len(data))
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 5), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_bit_that_changed_on_the_way_opens_no_connection(step: int, at: float, bit: int) -> None:
    """Check that no single changed bit of any command opens a connection.

    The two sides are never both ready, no message is accepted, and no other error than NotZmtp is
    raised.
    """
    asked: list[str] = []
    client, server = (
        client_of(),
        server_of(lambda key: bool(asked.append(key)) or key == CLIENT.public),
    )

    def carried(number: int, data: bytes) -> bytes:
        return flipped(data, at, bit) if number == step else data

    try:
        opened = client.handshake.opening()
        welcome = server.hear(opened[:GREETING_BYTES] + carried(0, opened[GREETING_BYTES:]))
        initiate = client.hear(server.handshake.opening() + carried(1, welcome))
        ready = server.hear(carried(2, initiate))
        assert step not in (0, 1, 2) or (not server.incoming.ready and asked == [])
        client.hear(carried(3, ready))
        assert step > 3 or not client.incoming.ready
        if step > 3:
            for number, sender, receiver in ((4, client, server), (5, server, client)):
                assert feed(receiver.incoming, carried(number, sender.seal([b"a message"]))) == (
                    [] if number == step else [[b"a message"]]
                )
    except NotZmtp:
        assert step > 2 or not server.incoming.ready


@given(st.binary(max_size=600), st.booleans())
def test_garbage_is_refused_or_waited_for(garbage: bytes, is_met: bool) -> None:
    side = met()[1] if is_met else greeted()
    try:
        assert feed(side.incoming, garbage) == []
    except NotZmtp:
        return
    assert side.incoming.ready == is_met


def test_no_secret_is_shown() -> None:
    client, server = met()
    shown = " ".join(
        map(
            repr,
            (
                client.handshake,
                server.handshake,
                client.incoming,
                server.incoming,
                client.incoming.cipher,
                CLIENT,
                SERVER,
            ),
        )
    )
    for secret in (CLIENT.secret, SERVER.secret):
        assert secret.hex() not in shown
        assert repr(secret) not in shown
