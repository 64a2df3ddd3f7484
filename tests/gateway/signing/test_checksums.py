"""Checksums of objects: known values, parts, and the bytes kept in the index."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.bucket.index_records import CHECKSUM_BYTES_MAX
from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.signing.checksum_headers import complete_checksum, upload_checksum
from ares.gateway.signing.checksums import (
    Algorithm,
    ChecksumKind,
    ObjectChecksum,
    checksum_of_parts,
    decode_checksum,
    encode_checksum,
)

CHECK_VALUES = {
    Algorithm.CRC32: "cbf43926",
    Algorithm.CRC32C: "e3069283",
    Algorithm.CRC64NVME: "ae8b14860a799888",
    Algorithm.SHA1: "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
    Algorithm.SHA256: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
}
"""The digests of ``123456789``, as the catalogues of CRCs have them."""

BOTH = [(algorithm, kind) for algorithm in Algorithm for kind in algorithm.kinds]


def digest(algorithm, *pieces):
    running = algorithm.begin()
    for piece in pieces:
        running.update(piece)
    return running.digest()


def base64(data):
    return b64encode(data).decode()


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_algorithms_have_their_published_values(algorithm):
    assert digest(algorithm, b"123", b"", b"456789").hex() == CHECK_VALUES[algorithm]


@pytest.mark.parametrize("algorithm", [each for each in Algorithm if each.name.startswith("CRC")])
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=6))
def test_crcs_of_parts_make_the_crc_of_the_object(algorithm, parts):
    told = [(base64(digest(algorithm, part)), len(part)) for part in parts]
    asked = ObjectChecksum(algorithm, "", ChecksumKind.FULL_OBJECT)
    assert checksum_of_parts(asked, told).value == base64(digest(algorithm, *parts))


def test_a_composite_checksum_is_of_the_parts_checksums():
    told = [(base64(digest(Algorithm.SHA256, part)), len(part)) for part in (b"a", b"b")]
    asked = ObjectChecksum(Algorithm.SHA256, "", ChecksumKind.COMPOSITE)
    parts = digest(Algorithm.SHA256, b"a") + digest(Algorithm.SHA256, b"b")
    expected = base64(digest(Algorithm.SHA256, parts)) + "-2"
    assert checksum_of_parts(asked, told) == ObjectChecksum(
        Algorithm.SHA256, expected, ChecksumKind.COMPOSITE
    )


@pytest.mark.parametrize(("algorithm", "kind"), BOTH)
def test_the_index_keeps_a_checksum(algorithm, kind):
    value = base64(digest(algorithm, b"x")) + "-10000"
    for kept in (ObjectChecksum(algorithm, value, kind), ObjectChecksum(algorithm, "", kind)):
        assert decode_checksum(encode_checksum(kept)) == kept
        assert len(encode_checksum(kept)) <= CHECKSUM_BYTES_MAX
    assert decode_checksum(encode_checksum(None)) is None


@given(st.binary(max_size=40))
def test_unknown_bytes_of_the_index_are_no_checksum(data):
    assert decode_checksum(data) is None
    assert decode_checksum(b"XXHASH3 FULL_OBJECT YWJj") is None


@pytest.mark.parametrize(
    ("algorithm", "kind", "expected"),
    [
        ("crc32", "", (Algorithm.CRC32, ChecksumKind.COMPOSITE)),
        ("CRC32C", "full_object", (Algorithm.CRC32C, ChecksumKind.FULL_OBJECT)),
        ("CRC64NVME", "", (Algorithm.CRC64NVME, ChecksumKind.FULL_OBJECT)),
        ("SHA1", "COMPOSITE", (Algorithm.SHA1, ChecksumKind.COMPOSITE)),
        ("", "", None),
        ("SHA256", "FULL_OBJECT", S3Code.InvalidRequest),
        ("CRC64NVME", "COMPOSITE", S3Code.InvalidRequest),
        ("CRC32", "HALF", S3Code.InvalidRequest),
        ("MD5", "", S3Code.InvalidRequest),
        ("", "COMPOSITE", S3Code.InvalidRequest),
    ],
)
def test_an_upload_asks_for_a_checksum(algorithm, kind, expected):
    headers = {"x-amz-checksum-algorithm": algorithm, "x-amz-checksum-type": kind}
    if isinstance(expected, S3Code):
        with pytest.raises(S3Error) as raised:
            upload_checksum(headers)
        assert raised.value.code is expected
    else:
        asked = upload_checksum(headers)
        assert asked == (None if expected is None else ObjectChecksum(expected[0], "", expected[1]))


def test_the_completion_tells_the_same_algorithm():
    asked = ObjectChecksum(Algorithm.CRC32, "", ChecksumKind.FULL_OBJECT)
    told = {"x-amz-checksum-crc32": "YWJjZA==", "x-amz-checksum-type": "FULL_OBJECT"}
    assert complete_checksum(told, asked) == "YWJjZA=="
    assert complete_checksum({}, asked) == complete_checksum({}, None) == ""
    for other in (None, ObjectChecksum(Algorithm.SHA1, "", ChecksumKind.COMPOSITE)):
        with pytest.raises(S3Error):
            complete_checksum(told, other)
    with pytest.raises(S3Error):
        complete_checksum({"x-amz-checksum-type": "COMPOSITE"}, asked)
