"""Documents in the bodies of requests, from friends and from strangers."""

from collections.abc import Callable
from time import process_time
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.bucket.commands import Conditions, NamedPart
from ares.bucket.index_records import PART_NUMBER_MAX, Versioning
from ares.gateway.s3.request_documents import (
    PRIVATE,
    PUBLIC_READ,
    canned_acl,
    completed_parts,
    deletions,
    location_constraint,
    tagging,
    versioning,
)
from ares.gateway.s3.s3_errors import S3Error
from ares.gateway.s3.xml_reading import XML_BYTES_MAX, XML_DEPTH_MAX, XML_ELEMENTS_MAX, parse_xml
from ares.gateway.s3.xml_text import S3_NAMESPACE

MD5 = "0123456789abcdef0123456789abcdef"
READERS: list[Callable[[bytes], object]] = [
    *(completed_parts, deletions, versioning, location_constraint, canned_acl),
    lambda data: tagging(data, 10),
]


def code_of(reader: Callable[[bytes], object], document: str | bytes) -> str:
    with pytest.raises(S3Error) as raised:
        reader(document.encode() if isinstance(document, str) else document)
    return raised.value.code.name


# -- strangers -------------------------------------------------------------------------------------

BOMB = (
    '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "&a;"}">' for n in range(10))
    + "]><Delete>&a9;</Delete>"
)
HOSTILE = [
    BOMB,
    '<!DOCTYPE a SYSTEM "http://example.org/a.dtd"><Delete/>',
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete>&x;</Delete>',
    "<Delete>&unknown;</Delete>",
    "<Delete>" * (XML_DEPTH_MAX + 1),
    "<a>" * 100_000,
    "<Delete>" + "<Object/>" * XML_ELEMENTS_MAX,
    "<Delete " + " ".join(f'a{number}="1"' for number in range(20)) + "/>",
    "<Delete " + " ".join(f'a{number}="1"' for number in range(100_000)) + "/>",
    "<Delete " + " ".join(f'xmlns:a{number}="a"' for number in range(100_000)) + "/>",
    "<" + "a" * 3_000_000,
    "<Delete a='" + "b" * 3_000_000,
    "<Delete>" + "&#65;" * 500_000,
    "<Delete><![CDATA[" + "]" * 1_000_000,
    "<Delete><!--" + "-" * 1_000_000,
    "<?a " + "?" * 1_000_000,
    "a" * 3_000_000,
    "\0" * 1_000_000,
    b"\xff\xfe<\0a\0/\0>\0",
    b"<Delete>\xff</Delete>",
    b"<Delete>\xed\xa0\x80</Delete>",
    "<Delete>&#0;</Delete>",
    "<Delete/><Delete/>",
    '<Delete xmlns="http://example.org/"/>',
    "<Delete>text</Delete>",
    "{}",
]


@pytest.mark.parametrize("document", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_document_is_malformed(document: str | bytes):
    for reader in (deletions, canned_acl):
        assert code_of(reader, document) == "MalformedXML"


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE Delete [<!ENTITY x "a">]>{}',
        '<!DOCTYPE Delete SYSTEM "http://example.org/a.dtd">{}',
        '<Delete xmlns="http://example.org/"><Object><Key>a</Key></Object></Delete>',
        "<Delete "
        + " ".join(f'a{n}="1"' for n in range(9))
        + "><Object><Key>a</Key></Object></Delete>",
        "<Delete>text<Object><Key>a</Key></Object></Delete>",
        "<Delete><Object><Key>a</Key><Unknown/></Object></Delete>",
        "<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        "<Delete><Object><Key>a</Key></Object><Unknown/></Delete>",
        "<Deletes><Object><Key>a</Key></Object></Deletes>",
    ],
    ids=range(9),
)
def test_a_document_with_a_single_fault_is_malformed(document: str):
    plain = "<Delete><Object><Key>a</Key></Object></Delete>"
    assert deletions(plain.encode()).items[0].key == "a"
    assert code_of(deletions, document.format(plain)) == "MalformedXML"


def test_the_depth_and_the_number_of_elements_are_bounded():
    def nested(depth: int) -> bytes:
        return ("<Delete>" * depth + "</Delete>" * depth).encode()

    assert parse_xml(nested(XML_DEPTH_MAX), "Delete").children
    assert (
        code_of(lambda data: parse_xml(data, "Delete"), nested(XML_DEPTH_MAX + 1)) == "MalformedXML"
    )
    many = "<Delete>" + "<a/>" * XML_ELEMENTS_MAX + "</Delete>"
    assert code_of(lambda data: parse_xml(data, "Delete"), many) == "MalformedXML"


def test_a_longer_document_is_not_parsed():
    assert code_of(deletions, "<" * (XML_BYTES_MAX + 1)) == "MalformedXML"
    assert code_of(lambda data: tagging(data, 10), "<" * 2_000_000) == "MalformedXML"


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "<Delete>" + "&#65;" * n + "</Delete>",
        lambda n: "<Delete>" + "&amp;" * n + "</Delete>",
        lambda n: "<Delete>" + "a\n" * n + "</Delete>",
        lambda n: "<Delete a='" + "&lt;" * n + "'/>",
        lambda n: "<Delete>" + "<!--a-->a" * n + "</Delete>",
        lambda n: "<Delete " + " ".join(f'xmlns:a{each}="a"' for each in range(n)) + "/>",
    ],
    ids=range(6),
)
def test_the_work_is_linear_in_the_bytes(make: Callable[[int], str]):
    def seconds(data: bytes) -> float:
        began = process_time()
        for _ in range(3):
            try:
                parse_xml(data, "Delete")
            except S3Error:
                continue
        return process_time() - began

    short, long = make(4_000).encode(), make(64_000).encode()
    assert seconds(long) < 100 * max(seconds(short), 0.002)  # quadratic work: 256 times


@settings(max_examples=50)
@given(st.binary(max_size=400))
def test_junk_is_refused(junk: bytes):
    for reader in READERS:
        try:
            reader(b"<Delete>" + junk + b"</Delete>")
        except S3Error:
            continue


@settings(max_examples=50)
@given(
    st.recursive(
        st.text(alphabet="<>&;'\"ab \n", max_size=8).map(escape),
        lambda inner: st.tuples(
            st.sampled_from(["Delete", "Object", "Key", "Tag", "TagSet", "Part", "Grant", "ETag"]),
            st.lists(inner, max_size=4),
        ).map(lambda told: f"<{told[0]}>{''.join(told[1])}</{told[0]}>"),
    )
)
def test_any_tree_is_read_or_refused(document: str):
    for root in ("Delete", "Tagging", "CompleteMultipartUpload", "AccessControlPolicy"):
        for reader in READERS:
            try:
                reader(f"<{root}>{document}</{root}>".encode())
            except S3Error:
                continue


def test_an_empty_body_is_missing():
    assert code_of(deletions, b"") == "MissingRequestBodyError"


@pytest.mark.parametrize(
    "namespace", ["", f' xmlns="{S3_NAMESPACE}"', f' xmlns="{S3_NAMESPACE[:-1]}"']
)
def test_a_document_has_the_namespace_of_s3_or_none(namespace: str):
    head = '<?xml version="1.0" encoding="utf-8" standalone="yes"?>\n'
    body = f"{head}<Delete{namespace}><Quiet>true</Quiet><Object><Key>a</Key></Object></Delete>"
    assert deletions(body.encode()).quiet


# -- multipart uploads and deletions ---------------------------------------------------------------


def parts_document(*parts: str) -> bytes:
    content = "".join(f"<Part>{part}</Part>" for part in parts)
    return f"<CompleteMultipartUpload>{content}</CompleteMultipartUpload>".encode()


def test_parts_have_numbers_etags_and_checksums():
    data = parts_document(
        f"<PartNumber>1</PartNumber><ETag>&quot;{MD5}&quot;</ETag>",
        f"<ETag>{MD5}</ETag><PartNumber> 10000 </PartNumber>"
        "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>",
    )
    first, second = completed_parts(data)
    assert (first.named, first.checksums) == (NamedPart(1, MD5), {})
    assert (second.named, second.checksums) == (NamedPart(10_000, MD5), {"CRC32": "AAAAAA=="})


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("<PartNumber>1</PartNumber>", "MalformedXML"),
        (f"<ETag>{MD5}</ETag>", "MalformedXML"),
        ("<PartNumber>1</PartNumber><ETag></ETag>", "InvalidPart"),
        (f"<PartNumber>1</PartNumber><ETag>{'a' * 65}</ETag>", "InvalidPart"),
        (f"<PartNumber>0</PartNumber><ETag>{MD5}</ETag>", "InvalidArgument"),
        (f"<PartNumber>{'9' * 400}</PartNumber><ETag>{MD5}</ETag>", "InvalidArgument"),
        (f"<PartNumber>1</PartNumber><PartNumber>1</PartNumber><ETag>{MD5}</ETag>", "MalformedXML"),
        (f"<PartNumber>1</PartNumber><ETag>{MD5}</ETag><Size>1</Size>", "MalformedXML"),
        (
            f"<PartNumber>1</PartNumber><ETag>{MD5}</ETag><ChecksumSHA1>?</ChecksumSHA1>",
            "InvalidPart",
        ),
    ],
)
def test_a_part_beyond_the_rules_is_refused(part: str, code: str):
    assert code_of(completed_parts, parts_document(part)) == code


def test_parts_are_at_most_ten_thousand():
    part = f"<PartNumber>1</PartNumber><ETag>{MD5}</ETag>"
    assert len(completed_parts(parts_document(*[part] * PART_NUMBER_MAX))) == PART_NUMBER_MAX
    assert (
        code_of(completed_parts, parts_document(*[part] * (PART_NUMBER_MAX + 1))) == "MalformedXML"
    )
    assert code_of(completed_parts, parts_document()) == "MalformedXML"


def delete_document(*objects: str) -> bytes:
    content = "".join(f"<Object>{each}</Object>" for each in objects)
    return f"<Delete>{content}</Delete>".encode()


def test_deletions_have_keys_versions_and_conditions():
    data = delete_document(
        "<Key> a &amp;/b </Key>",
        f"<Key>c</Key><VersionId>null</VersionId><ETag>&quot;{MD5}&quot;</ETag><Size>5</Size>",
        "<Key>d</Key><LastModifiedTime>2023-11-14T22:13:20.000Z</LastModifiedTime>",
    )
    first, second, third = deletions(data).items
    assert (first.key, first.version_id, first.conditions) == (" a &/b ", "", Conditions())
    assert second.version_id == "null"
    assert second.conditions == Conditions(etags=(MD5,), size=5)
    assert third.conditions.modified_until_ms == 1_700_000_000_999


@pytest.mark.parametrize(
    ("each", "code"),
    [
        ("<Key></Key>", "MalformedXML"),
        ("<VersionId>1</VersionId>", "MalformedXML"),
        ("<Key>a<b/></Key>", "MalformedXML"),
        ("<Key>a</Key><Size>-1</Size>", "InvalidArgument"),
        ("<Key>a</Key><LastModifiedTime>?</LastModifiedTime>", "InvalidArgument"),
        (f"<Key>{'é' * 513}</Key>", "KeyTooLongError"),
    ],
)
def test_a_deletion_beyond_the_rules_is_refused(each: str, code: str):
    assert code_of(deletions, delete_document(each)) == code


def test_deletions_are_at_most_a_thousand():
    assert len(deletions(delete_document(*["<Key>a</Key>"] * 1000)).items) == 1000
    assert code_of(deletions, delete_document(*["<Key>a</Key>"] * 1001)) == "MalformedXML"
    assert code_of(deletions, delete_document()) == "MalformedXML"


# -- configurations --------------------------------------------------------------------------------


def test_tags_are_pairs():
    tag = "<Tag><Key>a</Key><Value>1 é</Value></Tag>"
    assert tagging(f"<Tagging><TagSet>{tag}</TagSet></Tagging>".encode(), 10) == {"a": "1 é"}
    assert tagging(b"<Tagging><TagSet/></Tagging>", 10) == {}
    assert code_of(
        lambda data: tagging(data, 10), f"<Tagging><TagSet>{tag}{tag}</TagSet></Tagging>"
    ) == ("InvalidTag")
    assert code_of(lambda data: tagging(data, 10), "<Tagging/>") == "MalformedXML"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("<Status>Enabled</Status>", Versioning.ON),
        ("<Status>Suspended</Status><MfaDelete>Disabled</MfaDelete>", Versioning.SUSPENDED),
        ("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>", "NotImplemented"),
        ("<Status>Off</Status>", "IllegalVersioningConfigurationException"),
        ("", "IllegalVersioningConfigurationException"),
    ],
)
def test_versioning_is_enabled_or_suspended(content: str, found: Versioning | str):
    document = f"<VersioningConfiguration>{content}</VersioningConfiguration>"
    if isinstance(found, Versioning):
        assert versioning(document.encode()) is found
    else:
        assert code_of(versioning, document) == found


def test_a_new_bucket_may_name_a_region():
    document = "<CreateBucketConfiguration>{}</CreateBucketConfiguration>"
    region = "<LocationConstraint>eu-west-1</LocationConstraint>"
    assert location_constraint(b"") == ""
    assert location_constraint(document.format("").encode()) == ""
    assert location_constraint(document.format(region).encode()) == "eu-west-1"
    for name in ("Bucket", "Location", "Tags"):
        assert code_of(location_constraint, document.format(f"<{name}/>")) == "NotImplemented"


def grant(grantee: str, permission: str) -> str:
    kind = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"'
    return (
        f"<Grant><Grantee {kind}>{grantee}</Grantee><Permission>{permission}</Permission></Grant>"
    )


OWN = grant("<ID>ares</ID><DisplayName>a</DisplayName>", "FULL_CONTROL")
EVERYONE = grant("<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI>", "{}")


@pytest.mark.parametrize(
    ("grants", "found"),
    [
        (OWN, PRIVATE),
        (OWN + EVERYONE.format("READ"), PUBLIC_READ),
        (EVERYONE.format("READ") + OWN, PUBLIC_READ),
        (OWN + EVERYONE.format("WRITE"), "NotImplemented"),
        (EVERYONE.format("READ"), "NotImplemented"),
        (grant("<ID>another</ID>", "FULL_CONTROL"), "NotImplemented"),
        ("", "NotImplemented"),
        (grant("", "READ"), "MalformedACLError"),
    ],
)
def test_a_list_is_one_of_the_canned_ones(grants: str, found: str):
    document = (
        "<AccessControlPolicy><Owner><ID>ares</ID></Owner>"
        f"<AccessControlList>{grants}</AccessControlList></AccessControlPolicy>"
    )
    if found in (PRIVATE, PUBLIC_READ):
        assert canned_acl(document.encode()) == found
    else:
        assert code_of(canned_acl, document) == found
