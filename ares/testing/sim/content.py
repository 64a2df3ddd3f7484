"""Content of files that shows what became of every piece of it: tokens of 16 bytes, each written by one put; and the changes that puts make."""

import re
from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

from ares.fragment.divide import digest

TOKEN_BYTES = 16
FIRST_TOKENS = 90
"""How much more a put writes that makes a file, or makes it anew: some eight blocks."""

TOKENS_MAX = 24

_token = re.compile(rb"<[0-9a-f]{14}>")


class Change(Struct, frozen=True):
    """What a put does to the content that its client has: ``tokens`` tokens from the fraction ``at`` of it on. A truncation drops all that follow."""

    kind: Literal["replace", "insert", "delete", "truncate", "append", "rewrite"]
    at: float
    tokens: int


def draw_change(rng: Random) -> Change:
    """Edits in the middle are the most common."""
    kind = rng.choice(["replace", "replace", "replace", "insert", "insert", "delete", "delete", "append", "truncate", "rewrite"])
    return msgspec.convert({"kind": kind, "at": round(rng.random(), 3), "tokens": rng.randint(1, TOKENS_MAX)}, Change)


def apply(change: Change, content: bytes, new: Callable[[int], bytes]) -> bytes:
    """The changed content; ``new(count)`` gives tokens that nobody has written before."""
    start = int(change.at * (len(content) // TOKEN_BYTES)) * TOKEN_BYTES
    stop = start + change.tokens * TOKEN_BYTES
    match change.kind:
        case "replace":
            return content[:start] + new(change.tokens) + content[stop:]
        case "insert":
            return content[:start] + new(change.tokens) + content[start:]
        case "delete":
            return content[:start] + content[stop:]
        case "truncate":
            return content[:start]
        case "append":
            return content + new(change.tokens)
        case "rewrite":
            return new(FIRST_TOKENS + change.tokens)


def make_tokens(client: int, put: int, count: int) -> bytes:
    """``count`` tokens of a client's put; half of each is a digest, for the sake of the rolling hash that cuts files."""
    names = (f"{client:02x}{put:02x}{number:03x}" for number in range(count))
    return b"".join(f"<{name}{digest(name.encode()).hex()[:7]}>".encode() for name in names)


def tokens_of(content: bytes) -> list[bytes]:
    """The whole tokens in it."""
    return _token.findall(content)
