"""The start of Python without imports from the working directory.

``python -m`` and ``python -c`` look for modules in the working directory first: a user who can
write there decides which code runs, by a file ``uvloop.py`` for example. Every process of this
project starts Python by :func:`python`, and multiprocessing hands the flag on. The flag -I would do
too much: an installation found by PYTHONPATH, or in the user's own directory, would not be found
any more.
"""

import os
import sys


def python(*words: str | os.PathLike[str]) -> list[str]:
    """Return the command line of another process of this interpreter.

    ``words``: as Python takes them, for example ``-m``, a module, its arguments.
    """
    return [sys.executable, "-P", *(os.fspath(word) for word in words)]


def leave_working_directory() -> None:
    """Import no more modules from the working directory.

    For programs started with ``python -m``; called before any further import.
    """
    if not sys.flags.safe_path:
        del sys.path[0]
