"""What users hand in, looked at before anything is sent: one of the wrong kind is refused here, by name, and not somewhere deep below."""

from ares.model.errors import BadInput
from ares.model.identity import KEY_BYTES_MAX, RESERVED, VALUE_BYTES_MAX, ObjectName, fits
from ares.model.tag import Tag


def checked_value(value: bytes | bytearray | memoryview) -> bytes:
    """``value``, if it can be stored in one piece."""
    if isinstance(value, (bytes, bytearray)):
        size = len(value)
    elif isinstance(value, memoryview):
        size = value.nbytes
    else:
        raise BadInput(f"a value is bytes, not {type(value).__name__}; nothing was sent")
    if size > VALUE_BYTES_MAX:
        raise BadInput(f"a value may have at most {VALUE_BYTES_MAX} bytes; nothing was sent. Larger ones go through files")
    return bytes(value)


def is_tag(version: object) -> bool:
    """Whether it is a tag that can be sent: what cannot be encoded would take its whole batch with it."""
    if not isinstance(version, Tag):
        return False
    return all(isinstance(part, int) and 0 <= part < 2**64 for part in (version.number, version.writer))


def checked_prefix(prefix: str, before: str = "") -> None:
    """Raises :class:`BadInput` for what no name can begin with, ``before`` being put before it."""
    if not isinstance(prefix, str):
        raise BadInput(f"names begin with text (str), not with {type(prefix).__name__}")
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"names begin with valid text (UTF-8): {error}") from error
    bytes_max = KEY_BYTES_MAX - len(before)
    if not fits(prefix, bytes_max):
        raise BadInput(f"names begin with at most {bytes_max} bytes of UTF-8: no name is that long")


def check_progress(progress: object) -> None:
    """Found out now: the first call may come when something was changed."""
    if progress is not None and not callable(progress):
        raise BadInput(f"progress is a function to call, not {type(progress).__name__}; nothing was sent")


def checked_key(key: str) -> ObjectName:
    """``key``, if it can be one."""
    if not isinstance(key, str):
        raise BadInput(f"a key is text (str), not {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise BadInput(f"a key must be valid text (UTF-8): {error}") from error
    if not 1 <= size <= KEY_BYTES_MAX:
        raise BadInput(f"a key has 1 to {KEY_BYTES_MAX} bytes of UTF-8, not {size}")
    if key.startswith(RESERVED):
        raise BadInput("keys that begin with a NUL character are reserved")
    return ObjectName(key)
