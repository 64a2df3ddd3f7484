"""A terminal painted line by line, with keys read as they are pressed.

The terminal is restored at every end. Only changed lines are written: a refresh is some hundred
bytes over SSH. A terminal that takes no output (Ctrl-S) misses the paint and delays no work.
"""

import asyncio
import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence

_CLEAR = "\x1b[2J"
_ENTER = f"\x1b[?1049h\x1b[?25l{_CLEAR}"  # the alternate screen, no cursor, empty
_LEAVE = "\x1b[?25h\x1b[?1049l"
USUAL_SCREEN = (80, 24)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def can_be_painted() -> bool:
    """Return whether standard output is a terminal with a movable cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


class TopScreen:
    """Standard output, for which :func:`can_be_painted` is true, while :meth:`shown` runs.

    ``ended``: set by q, Ctrl-C or another ending signal, whose number ``signal`` holds.
    """

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._painted: list[str] = []
        self.ended = asyncio.Event()
        self.signal = 0

    @property
    def size(self) -> tuple[int, int]:
        """Return the columns and rows."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self._out)
            return columns or USUAL_SCREEN[0], rows or USUAL_SCREEN[1]
        return USUAL_SCREEN

    @contextlib.contextmanager
    def shown(self, changed: Callable[[], None]) -> Iterator[None]:
        """Show the screen; call ``changed`` when all lines must be painted again."""
        loop = asyncio.get_running_loop()
        before = None if self._keys is None else termios.tcgetattr(self._keys)

        def enter() -> None:
            if self._keys is not None:
                tty.setcbreak(self._keys, termios.TCSANOW)
            self._painted = []
            self._write(_ENTER)

        def leave() -> None:
            with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
                termios.tcflow(self._out, termios.TCOON)
            self._write(_LEAVE)
            if self._keys is not None and before is not None:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._keys, termios.TCSANOW, before)

        def stop() -> None:
            leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            enter()
            changed()

        def resize() -> None:
            self._painted = []
            self._write(_CLEAR)
            changed()

        for number in ENDING:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGTSTP, stop)
        loop.add_signal_handler(signal.SIGWINCH, resize)
        if self._keys is not None:
            loop.add_reader(self._keys, self._press, self._keys)
        try:
            enter()
            yield
        finally:
            leave()

    def paint(self, lines: Sequence[str]) -> None:
        """Show ``lines``, at most as many as the terminal has rows."""
        before = self._painted
        changes = [
            f"\x1b[{row};1H{line}\x1b[K"
            for row, line in enumerate(lines, 1)
            if row > len(before) or before[row - 1] != line
        ]
        if len(lines) < len(before):
            changes.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        if self._write("".join(changes)):
            self._painted = list(lines)

    def _write(self, text: str) -> bool:
        """Write ``text``; return whether the terminal took it."""
        try:
            if not select.select([], [self._out], [], 0)[1]:
                return False
            os.write(self._out, text.encode(errors="backslashreplace"))
        except OSError:
            self.ended.set()
        return True

    def _press(self, keys: int) -> None:
        try:
            pressed = os.read(keys, 1024)
        except OSError:
            pressed = b""
        if not pressed or b"q" in pressed or b"Q" in pressed:
            asyncio.get_running_loop().remove_reader(keys)
            self.ended.set()

    def _end(self, number: signal.Signals) -> None:
        self.signal = 0 if number == signal.SIGINT else number
        self.ended.set()
