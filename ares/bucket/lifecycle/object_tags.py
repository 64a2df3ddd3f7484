"""The tags of an object, and of a bucket: pairs of text, as the index keeps them."""

from collections.abc import Mapping

import msgspec

from ares.bucket.index_records import TAGS_BYTES_MAX

OBJECT_TAGS_MAX = 10
BUCKET_TAGS_MAX = 50
TAG_NAME_CHARACTERS_MAX = 128
TAG_TEXT_CHARACTERS_MAX = 256

_encoder = msgspec.msgpack.Encoder(order="sorted")
_decoder = msgspec.msgpack.Decoder(dict[str, str])


def encode_tags(tags: Mapping[str, str], count_max: int = OBJECT_TAGS_MAX) -> bytes:
    """Return the bytes of tags, none for no tags. Raises ValueError with the reason."""
    if len(tags) > count_max:
        raise ValueError(f"{len(tags)} tags, and there may be {count_max}")
    for name, text in tags.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError("tags map text to text")
        if not 1 <= len(name) <= TAG_NAME_CHARACTERS_MAX:
            raise ValueError(f"the name of a tag has 1 to {TAG_NAME_CHARACTERS_MAX} characters")
        if len(text) > TAG_TEXT_CHARACTERS_MAX:
            raise ValueError(f"the text of a tag has at most {TAG_TEXT_CHARACTERS_MAX} characters")
    encoded = _encoder.encode(dict(tags)) if tags else b""
    if len(encoded) > TAGS_BYTES_MAX:
        raise ValueError(f"tags have at most {TAGS_BYTES_MAX} bytes")
    return encoded


def decode_tags(encoded: bytes) -> dict[str, str]:
    """Return the tags in bytes of :func:`encode_tags`; no tags for the bytes of another writer."""
    try:
        return _decoder.decode(encoded) if encoded else {}
    except ValueError:
        return {}
