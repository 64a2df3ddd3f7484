"""The names taken by commands about buckets, and their shared outputs."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ares.gateway.access.reserved_buckets import is_reserved
from ares.model.errors import BadInput

if TYPE_CHECKING:
    from ares.client.buckets.bucket_values import ObjectInfo

IfAbsent = Annotated[
    bool, typer.Option("--if-absent", help="Only if no object has the key: of rivals one wins.")
]
IfVersion = Annotated[
    str | None,
    typer.Option(
        "--if-version",
        metavar="V",
        help="Only over this version of the object.",
        show_default=False,
    ),
]
IfEtag = Annotated[
    str | None,
    typer.Option(
        "--if-etag",
        metavar="E",
        help="Only over a version with this etag.",
        show_default=False,
    ),
]
NamedVersion = Annotated[
    str | None,
    typer.Option("--version", metavar="V", help="This version alone.", show_default=False),
]
ObjectPath = Annotated[
    str,
    typer.Argument(metavar="BUCKET/KEY", help="The bucket and the key.", show_default=False),
]


class BucketPath(NamedTuple):
    """A bucket, and a key of an object."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}"


def object_path(text: str) -> BucketPath:
    """Return the bucket and the key of BUCKET/KEY. Raises :class:`BadInput`."""
    bucket, _, key = text.partition("/")
    if not bucket or not key:
        raise BadInput(f"name an object as BUCKET/KEY, not {text!r}; nothing was sent")
    return BucketPath(bucket, key)


def refuse_reserved(bucket: str, advice: str = "") -> None:
    """Raise :class:`BadInput` for a bucket of the gateways, which these commands do not change."""
    if is_reserved(bucket):
        raise BadInput(
            f"bucket {bucket!r} belongs to the gateways, which keep the access keys of S3 clients "
            f"there: `ares-cli bucket key` changes them{advice}. Nothing was changed"
        )


def parsed_tags(given: list[str]) -> dict[str, str]:
    """Return tags of texts NAME=TEXT. Raises :class:`BadInput`."""
    pairs = [text.partition("=") for text in given]
    if any(not name or not equals for name, equals, _ in pairs):
        raise BadInput("--tag takes NAME=TEXT; nothing was sent")
    return {name: text for name, _, text in pairs}


def shown_time(ms: int) -> str:
    """Return a time of a clock for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def about_object(bucket: str, info: "ObjectInfo") -> dict[str, Any]:
    """Return a version of an object for JSON."""
    return {
        "bucket": bucket,
        "key": info.key,
        "version": info.version,
        "etag": info.etag,
        "bytes": info.size,
        "modified_ms": info.modified_ms,
        "metadata": dict(info.metadata),
        "tags": dict(info.tags),
    }
