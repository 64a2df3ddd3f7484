"""The errors which programs expect of a file system, from the errors of a cluster."""

import errno
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ares.client.buckets.bucket_errors import BucketExists, BucketNotEmpty, BucketNotFound
from ares.model.errors import (
    AresError,
    BadInput,
    ConsensusUnavailable,
    DomainNotFound,
    FileChanged,
    ObjectNotFound,
    Unavailable,
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

ERROR_NUMBERS: dict[type[AresError], int] = {
    ObjectNotFound: errno.ENOENT,
    DomainNotFound: errno.ENOENT,
    BucketNotFound: errno.ENOENT,
    BucketExists: errno.EEXIST,
    BucketNotEmpty: errno.ENOTEMPTY,
    FileChanged: errno.ESTALE,
    Unavailable: errno.EHOSTUNREACH,
    ConsensusUnavailable: errno.EHOSTUNREACH,
    AresError: errno.EIO,
}
"""Error numbers, the first matching class wins.

ETIMEDOUT is not used: fsspec takes a TimeoutError for its own, and drops the text.
"""


def as_os_error(error: AresError) -> Exception:
    """Return the error for a program that uses files.

    This is an OSError of the class for its number, or the ValueError in a BadInput.
    """
    if isinstance(error, BadInput):
        return error
    return OSError(
        next(number for kind, number in ERROR_NUMBERS.items() if isinstance(error, kind)),
        str(error),
    )


def as_local_error(error: BadInput) -> Exception:
    """Return the OSError behind an error about a local file."""
    return (
        OSError(error.__cause__.errno, str(error))
        if isinstance(error.__cause__, OSError)
        else error
    )


def with_os_errors(
    method: Callable[Parameters, Awaitable[Result]],
) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Return the method with its errors translated."""

    @functools.wraps(method)
    async def translated(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return await method(*arguments, **named)
        except AresError as error:
            raise as_os_error(error) from error

    return translated


def exists(path: str) -> FileExistsError:
    """Return the error for a file made before by another client."""
    return FileExistsError(errno.EEXIST, "it exists already, and nothing was changed", path)


def stale(path: str, why: str) -> OSError:
    """Return the error for an unpublished put."""
    return OSError(
        errno.ESTALE,
        f"{why}; none of the written bytes are stored, write them again",
        path,
    )
