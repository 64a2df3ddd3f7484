"""Bodies in aws-chunked encoding: any split into pieces, and hostile bodies."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.chunked_body import CHUNK_BYTES_MIN, ChunkedDecoder
from ares.gateway.signing.payload_form import ChunkKey, PayloadForm, VerifiedPayload
from tests.gateway.signing.signed_requests import SCOPE, STAMP, ChunkSigner, example_key

SEED = "5" * 64
NAME = "x-amz-checksum-crc32"
SIGNED = VerifiedPayload(
    PayloadForm.SIGNED_CHUNKS, chunk_key=ChunkKey(example_key(), STAMP, SCOPE, SEED)
)
SIGNED_TRAILER = VerifiedPayload(
    PayloadForm.SIGNED_CHUNKS_TRAILER, chunk_key=ChunkKey(example_key(), STAMP, SCOPE, SEED)
)
UNSIGNED = VerifiedPayload(PayloadForm.UNSIGNED_CHUNKS_TRAILER)
PARTS = [bytes([number]) * (CHUNK_BYTES_MIN + number) for number in range(3)] + [b"end"]
DATA = b"".join(PARTS)
LENGTH = len(DATA)


def signed_chunks():
    signer = ChunkSigner(SEED)
    return [signer.chunk(part) for part in [*PARTS, b""]], signer


def encoded(form):
    """Return DATA in chunks, with a trailer where the form has one."""
    if form is UNSIGNED:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in PARTS)
        return chunks + b"0\r\n" + NAME.encode() + b":abc=\r\n\r\n"
    chunks, signer = signed_chunks()
    end = b"\r\n" if form is SIGNED else signer.trailer(NAME, "abc=")
    return b"".join(chunks) + end


def decode(form, pieces, length=LENGTH, trailer=NAME):
    decoder = ChunkedDecoder(form, length, "" if form is SIGNED else trailer)
    decoded = b"".join(data for piece in pieces for data in decoder.feed(piece))
    return decoded, decoder.end()


def fault(form, *pieces, **named):
    with pytest.raises(S3Error) as raised:
        decode(form, pieces, **named)
    return raised.value.code


FORMS = pytest.mark.parametrize(
    "form", [SIGNED, SIGNED_TRAILER, UNSIGNED], ids=lambda f: f.form.name
)


@FORMS
@given(cuts=st.lists(st.integers(0, len(DATA) + 900), max_size=12))
def test_the_pieces_do_not_matter(form, cuts):
    body = encoded(form)
    bounds = [0, *sorted(cuts), len(body)]
    pieces = [body[start:stop] for start, stop in pairwise(bounds)]
    assert decode(form, pieces) == (DATA, "" if form is SIGNED else "abc=")


@FORMS
def test_single_bytes_are_decoded(form):
    body = encoded(form)
    assert decode(form, [body[at : at + 1] for at in range(len(body))])[0] == DATA


@FORMS
@given(data=st.data())
def test_a_body_cut_anywhere_is_incomplete(form, data):
    body = encoded(form)
    stop = data.draw(st.integers(0, len(body) - 3))
    assert fault(form, body[:stop]) in (
        *(S3Code.IncompleteBody, S3Code.MalformedTrailerError, S3Code.SignatureDoesNotMatch),
    )


@given(data=st.data())
def test_a_changed_byte_of_a_signed_body_is_found(data):
    body = bytearray(encoded(SIGNED))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.sampled_from([1, 2, 4, 8, 16, 64, 128]))
    with pytest.raises(S3Error):
        decode(SIGNED, [bytes(body)])


def test_chunks_in_another_order_are_refused():
    chunks, _ = signed_chunks()
    turned = [chunks[1], chunks[0], *chunks[2:], b"\r\n"]
    assert fault(SIGNED, b"".join(turned)) is S3Code.SignatureDoesNotMatch


def test_a_chunk_sent_twice_or_left_out_is_refused():
    chunks, _ = signed_chunks()
    twice = b"".join([chunks[0], *chunks, b"\r\n"])
    assert fault(SIGNED, twice, length=len(DATA) * 2) is S3Code.SignatureDoesNotMatch
    assert fault(SIGNED, b"".join([*chunks[1:], b"\r\n"])) is S3Code.SignatureDoesNotMatch


def test_the_last_chunk_is_signed():
    chunks, _ = signed_chunks()
    last = b"0;chunk-signature=" + b"0" * 64 + b"\r\n\r\n"
    assert fault(SIGNED, b"".join([*chunks[:-1], last])) is S3Code.SignatureDoesNotMatch
    shorter = b"".join([chunks[0], chunks[-1], b"\r\n"])
    assert fault(SIGNED, shorter, length=len(PARTS[0])) is S3Code.SignatureDoesNotMatch


def test_signed_chunks_of_another_request_are_refused():
    signer = ChunkSigner("6" * 64)
    body = signer.chunk(b"abc") + signer.chunk(b"") + b"\r\n"
    assert fault(SIGNED, body, length=3) is S3Code.SignatureDoesNotMatch


@FORMS
def test_an_unsigned_chunk_is_no_signed_one(form):
    unsigned = b"3\r\nabc\r\n0\r\n\r\n"
    if form is UNSIGNED:
        assert decode(form, [unsigned], length=3, trailer="") == (b"abc", "")
        signed = ChunkSigner(SEED).chunk(b"abc")
        assert fault(form, signed, length=3) is S3Code.IncompleteBody
    else:
        assert fault(form, unsigned, length=3) is S3Code.IncompleteBody


@pytest.mark.parametrize(
    ("head", "most"),
    [
        (b"0" * 100_000, 129),
        (b"1" + b"0" * 30 + b"\r\n", 33),
        (b"8000000000000000\r\n", 18),
        (b"-1\r\n", 4),
        (b"+3\r\nabc\r\n0\r\n\r\n", 4),
        (b"0x3\r\nabc\r\n0\r\n\r\n", 5),
        (b" 3\r\nabc\r\n0\r\n\r\n", 4),
        (b"3_0\r\n", 5),
        (b"\r\n", 2),
        (b"3;a=b\r\nabc\r\n0\r\n\r\n", 7),
        (b"3\nabc\r\n0\r\n\r\n", 2),
        (b"4\r\nabcd\r\n0\r\n\r\n", 3),
        (b"3\r\nabcd\r\n0\r\n\r\n", 10),
        (b"2\r\nab\r\n0\r\n\r\n", None),
        (b"3\r\nabc\r\n", None),
        (b"3\r\nabc", None),
        (b"3\r\nabc\r\n0\r\n", None),
        (b"3\r\nabc\r\n0\r\n\r\n" + b"x" * 5000, None),
        (b"", None),
    ],
)
def test_a_malformed_body_is_refused_early(head, most):
    """``most``: the bytes after which the decoder refuses; None: at the end."""
    taken = 0

    def single_bytes():
        nonlocal taken
        for taken in range(1, len(head) + 1):
            yield head[taken - 1 : taken]

    assert fault(UNSIGNED, head, length=3, trailer="") is S3Code.IncompleteBody
    with pytest.raises(S3Error):
        decode(UNSIGNED, single_bytes(), length=3, trailer="")
    assert taken <= (len(head) if most is None else most)


def test_only_the_last_chunk_is_small():
    """A chunk of a byte costs as much as a chunk of kilobytes."""
    size = CHUNK_BYTES_MIN - 1
    small = b"%x\r\n%s\r\n" % (size, b"a" * size)
    assert fault(UNSIGNED, small + small, length=2 * size) is S3Code.InvalidChunkSizeError
    assert decode(UNSIGNED, [small + b"0\r\n\r\n"], length=size, trailer="")[0] == b"a" * size


DATA_CHUNKS = b"3\r\nabc\r\n0\r\n"
TRAILER = NAME.encode() + b":abc="


@pytest.mark.parametrize(
    "end",
    [
        TRAILER + b"\r\n\r\n",
        TRAILER + b"\n\r\n\r\n",
        b"\r\n" + TRAILER + b"\r\n",
        b"X-Amz-Checksum-CRC32 : abc= \r\n\r\n",
    ],
)
def test_trailers_of_several_clients_are_read(end):
    """minio-go ends a line by LF alone; some clients send an empty line first."""
    assert decode(UNSIGNED, [DATA_CHUNKS + end], length=3) == (b"abc", "abc=")


@pytest.mark.parametrize(
    "end",
    [
        b"\r\n",
        b"x-amz-checksum-sha1:abc=\r\n\r\n",
        TRAILER + b"\r\n" + TRAILER + b"\r\n\r\n",
        TRAILER + b"\r\nx-amz-meta-a:1\r\n\r\n",
        TRAILER + b"\r\n3\r\nabc\r\n0\r\n\r\n",
        b"no colon\r\n\r\n",
        b":abc=\r\n\r\n",
    ],
)
def test_another_trailer_than_the_announced_one_is_refused(end):
    assert fault(UNSIGNED, DATA_CHUNKS + end, length=3) is S3Code.MalformedTrailerError


def test_a_trailer_without_announcement_is_refused():
    body = DATA_CHUNKS + TRAILER + b"\r\n\r\n"
    assert fault(UNSIGNED, body, length=3, trailer="") is S3Code.MalformedTrailerError
    chunks, signer = signed_chunks()
    end = signer.trailer(NAME, "abc=")
    assert fault(SIGNED, b"".join(chunks) + end) is S3Code.IncompleteBody


def test_a_signed_trailer_has_the_right_signature():
    chunks, signer = signed_chunks()
    end = signer.trailer(NAME, "abc=")
    minio = end.replace(b"abc=\r\n", b"abc=\n\r\n")
    assert decode(SIGNED_TRAILER, [b"".join(chunks) + minio])[1] == "abc="
    for wrong in (
        end.replace(b"abc=", b"abd="),
        end.split(b"x-amz-trailer-signature")[0] + b"\r\n",
        end.replace(b"signature:", b"signature:0"),
    ):
        body = b"".join(chunks) + wrong
        assert fault(SIGNED_TRAILER, body) is S3Code.SignatureDoesNotMatch
