"""Starting Python so that it imports nothing from the directory in which it is started.

``python -m`` and ``python -c`` look for modules in the working directory first, so who writes there decides what runs, by a file ``uvloop.py``
for example. Every process of this project starts Python by :func:`python`, and multiprocessing hands the flag on. The flag -I would do too much: an
installation that is found by PYTHONPATH, or is in the user's own directory, would not be found any more.
"""

import os
import sys


def python(*words: str | os.PathLike[str]) -> list[str]:
    """The command line of another process of this interpreter; ``words`` as Python takes them, for example ``-m``, a module, its arguments."""
    return [sys.executable, "-P", *(os.fspath(word) for word in words)]


def leave_working_directory() -> None:
    """Import nothing more from the working directory; for what people start with ``python -m``, to be called before anything else is imported."""
    if not sys.flags.safe_path:
        del sys.path[0]
