"""The results of commands, as the fold says them at the command's position."""

import enum

import msgspec
from msgspec import Struct

from ares.bucket.index_records import Version


class CommandOutcome(enum.IntEnum):
    """The outcome of a command. S3's answer is in the comment."""

    DONE = 0  # 200 or 204
    FENCED = 1  # 503: the session has ended, nothing changed
    SETTLED = 2  # 503: the number is below the session's lowest, nothing changed
    MALFORMED = 3  # nothing changed
    CONDITION_FAILED = 4  # 412
    NO_SUCH_KEY = 5  # 404
    NO_SUCH_BUCKET = 6  # 404
    BUCKET_EXISTS = 7  # 409
    BUCKET_NOT_EMPTY = 8  # 409
    NO_SUCH_UPLOAD = 9  # 404
    BAD_PART = 10  # 400 InvalidPart
    BAD_PART_ORDER = 11  # 400 InvalidPartOrder
    PART_TOO_SMALL = 12  # 400 EntityTooSmall
    TOO_NESTED = 13  # 400: a copy of a copy of a copy, in parts, more than 64 times
    OVER_QUOTA = 14  # 403
    NO_SUCH_SOURCE = 15  # 404
    BAD_RANGE = 16  # 400
    NOT_TAKEN = 17  # an upkeep command that came too late, or was too early
    BATCH_FAILED = 18  # an item of an atomic batch failed: ``items`` has the outcomes
    TOO_LARGE = 19  # 400 EntityTooLarge
    BUSY = 20  # 503 SlowDown: remembered results hold too many bytes, nothing changed


class CommandResult(Struct, frozen=True, array_like=True, gc=False):
    """The result of a command. ``version``: of the entry or the upload that it made or removed."""

    outcome: CommandOutcome
    version: Version | None = None
    etag: str = ""
    size: int = 0
    ms: int = 0
    null: bool = False
    marker: bool = False
    items: tuple["CommandResult", ...] = ()

    @property
    def done(self) -> bool:
        return self.outcome is CommandOutcome.DONE


COMMAND_DONE = CommandResult(CommandOutcome.DONE)
COMMAND_FENCED = CommandResult(CommandOutcome.FENCED)
COMMAND_SETTLED = CommandResult(CommandOutcome.SETTLED)
COMMAND_MALFORMED = CommandResult(CommandOutcome.MALFORMED)
COMMAND_BUSY = CommandResult(CommandOutcome.BUSY)
COMMAND_NOT_TAKEN = CommandResult(CommandOutcome.NOT_TAKEN)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CommandResult)
encode_result = _encoder.encode
decode_result = _decoder.decode
