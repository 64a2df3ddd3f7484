"""The errors of this project as those that programs expect of a file system, with their text."""

import errno
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ares.model.errors import AresError, BadInput, ConsensusUnavailable, DomainNotFound, FileChanged, ObjectNotFound, Unavailable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

NUMBERS: dict[type[AresError], int] = {
    ObjectNotFound: errno.ENOENT,
    DomainNotFound: errno.ENOENT,
    FileChanged: errno.ESTALE,
    Unavailable: errno.EHOSTUNREACH,
    ConsensusUnavailable: errno.EHOSTUNREACH,
    AresError: errno.EIO,
}
"""The first that fits. Not ETIMEDOUT: fsspec takes a TimeoutError for one of its own, and drops the text."""


def as_os_error(error: AresError) -> Exception:
    """What a program that uses files is to see: an OSError of the class that belongs to its number, or the ValueError that BadInput is."""
    if isinstance(error, BadInput):
        return error
    return OSError(next(number for kind, number in NUMBERS.items() if isinstance(error, kind)), str(error))


def as_local_error(error: BadInput) -> Exception:
    """Where the input is a local file: the OSError behind it."""
    return OSError(error.__cause__.errno, str(error)) if isinstance(error.__cause__, OSError) else error


def with_os_errors(method: Callable[Parameters, Awaitable[Result]]) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """The method, its errors translated."""

    @functools.wraps(method)
    async def translated(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return await method(*arguments, **named)
        except AresError as error:
            raise as_os_error(error) from error

    return translated
