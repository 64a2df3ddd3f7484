"""Bytes to be received into: without zeros first, and without a copy at the end.

``bytes`` that are made from a buffer are a second pass over memory, and a bytearray begins with one of zeros; for values of many MiB either costs
about as much as receiving them. CPython lets its own modules make a bytes object and fill it before anybody else sees it; that is what this does.
"""

import ctypes

_DATA_OFFSET = bytes.__basicsize__ - 1

_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_new_bytes.restype = ctypes.py_object


class Blank:
    """``size`` bytes, more than 1, whose content is undefined until ``view`` was filled; then they are :meth:`bytes`, and never change again."""

    __slots__ = ("_bytes", "view")

    def __init__(self, size: int) -> None:
        self._bytes: bytes = _new_bytes(None, size)
        self.view = memoryview((ctypes.c_char * size).from_address(id(self._bytes) + _DATA_OFFSET)).cast("B")

    def bytes(self) -> bytes:
        """When all of ``view`` is filled; nothing may be written to it from then on."""
        self.view.release()
        return self._bytes
