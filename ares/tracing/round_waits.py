"""Servers for which a round waited, from the attributes of its span.

A span comes from a file: an attribute may have any type.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from ares.tracing.spans import Span


class RoundReply(Struct, frozen=True):
    """A reply to a round. Times are milliseconds from the round's beginning."""

    server: str
    at_ms: float
    asked_ms: float
    """Time of the request to the server."""
    connected_ms: float
    """Time of the connection with the server; 0 if it was made before the round."""
    own_ms: float | None
    """Time for which the server had the request, by the server's own report."""

    @property
    def sent_ms(self) -> float:
        """Return the time at which the request could leave."""
        return max(self.asked_ms, self.connected_ms)


class RoundWait:
    """The replies to a round, the earliest first, and the servers without a reply."""

    def __init__(self, span: Span) -> None:
        about = span.attributes
        self._what = str(about.get("ares.round", ""))
        self._needed = about.get("ares.needed")
        self._sent_again = about.get("ares.sent_again")
        self._asked = _names(about.get("ares.asked"))
        self._refused = _names(about.get("ares.refused"))
        self._spared = _names(about.get("ares.spared"))
        self._rest_ms = _number(about.get("ares.spared.ms"))
        self._silent_ms = _number(about.get("ares.silent.ms"))
        self.replies = self._read(about)

    def _read(self, about: dict[str, Any]) -> list[RoundReply]:
        servers = _names(about.get("ares.quorum"))
        count, rest_ms = len(servers), self._rest_ms or 0.0
        times, own, connected = (
            _numbers(about.get(f"ares.quorum.{name}"), count)
            for name in ("ms", "server_ms", "connected_ms")
        )
        if times is None:
            return []
        asked = [rest_ms if server in self._spared else 0.0 for server in servers]
        columns = (times, asked, connected or [0.0] * count, own or [None] * count)
        return [RoundReply(*row) for row in zip(servers, *columns, strict=True)]

    @property
    def last(self) -> RoundReply | None:
        """Return the reply that ended the round; None if the round ended without a quorum."""
        needed = self._needed
        whole = isinstance(needed, int) and 1 <= needed <= len(self.replies)
        return self.replies[-1] if whole else None

    def _silent(self, at_ms: float) -> list[str]:
        """Return the servers asked and still without an answer at ``at_ms``."""
        spared = self._spared if self._rest_ms is None or self._rest_ms >= at_ms else ()
        done = {*self._refused, *(reply.server for reply in self.replies if reply.at_ms <= at_ms)}
        return [server for server in self._asked if server not in done and server not in spared]

    def stages(self) -> Iterator[tuple[str, float, float]]:
        """Divide the time until the last reply: name, start, end of each part.

        Yields no part for a server asked at first and already connected. The wait for servers that
        stayed silent follows the last reply.
        """
        last = self.last
        if last is not None and (0 < last.sent_ms < last.at_ms or self._silent_ms is not None):
            if last.asked_ms:
                yield _waiting(self._silent(last.asked_ms)), 0.0, last.asked_ms
            if last.connected_ms > last.asked_ms:
                yield f"connecting to {last.server}", last.asked_ms, last.connected_ms
            yield f"to {last.server} and back", last.sent_ms, last.at_ms
        if self._silent_ms is not None:
            begin_ms = self.replies[-1].at_ms if self.replies else 0.0
            yield _waiting(self._silent(self._silent_ms)), begin_ms, self._silent_ms

    def remark(self) -> str:
        """Name the servers that answered, with the times, and the silent servers."""
        end_ms = self.replies[-1].at_ms if self.replies else float("inf")
        parts = [" ".join(f"{reply.server} {reply.at_ms:.1f}" for reply in self.replies)]
        if self._sent_again:
            parts.append(f"sent again {self._sent_again} times")
        if self._refused:
            parts.append(f"{', '.join(self._refused)} refused")
        if silent := self._silent(end_ms):
            parts.append(f"not yet {' '.join(silent)}")
        words = "; ".join(filter(None, parts))
        return f"{self._what}: {words}" if words else ""

    def sentence(self) -> str:
        """Name the server that ended the round, its time, and the servers still silent."""
        last = self.last
        refused = f"; {', '.join(self._refused)} refused" if self._refused else ""
        if last is None:
            silent = self._silent(float("inf"))
            return (
                f"{len(self.replies)} answered of the {self._needed} needed"
                + (f"; no answer came from {', '.join(silent)}" if silent else "")
                + refused
            )
        if self._silent_ms is not None:
            silent = self._silent(self._silent_ms)
            answered = ", ".join(reply.server for reply in self.replies)
            return (
                f"{', '.join(silent) or 'enough servers'} had not answered after "
                f"{self._silent_ms:.1f} ms, and it went on with the replies of {answered}{refused}"
            )
        count, before = len(self.replies), self._silent(last.asked_ms) if last.asked_ms else []
        role = (
            f"made the quorum of {self._needed}"
            if count == self._needed
            else f"was the last of {count} that were waited for"
        )
        asked = f"was asked after {last.asked_ms:.1f} ms and " if last.asked_ms else ""
        lead = f"{', '.join(before)} had not answered, so " if before else ""
        silent = [server for server in self._silent(last.at_ms) if server not in before]
        return (
            f"{lead}{last.server} {asked}{role}, after {last.at_ms:.1f} ms: {_shares(last)}"
            + (f"; {', '.join(silent)} had not answered by then" if silent else "")
            + refused
        )


def _shares(last: RoundReply) -> str:
    """Divide the time from asking a server until its reply."""
    rest_ms = last.at_ms - last.sent_ms - (last.own_ms or 0.0)
    parts = [
        f"{last.sent_ms - last.asked_ms:.1f} ms connecting" if last.sent_ms > last.asked_ms else "",
        f"{last.own_ms:.1f} ms at the server" if last.own_ms is not None else "",
        f"{max(rest_ms, 0.0):.1f} ms that this process cannot tell from the network's",
    ]
    return ", ".join(filter(None, parts))


def _waiting(silent: Sequence[str]) -> str:
    return f"waiting for {', '.join(silent)}" if silent else "waiting for a decodable value"


def chain_sentence(span: Span) -> str:
    """Name the servers for which an operation on a log waited."""
    servers = " > ".join(_names(span.attributes.get("ares.asked")))
    return f"the chain {servers}, whose servers' time this process cannot tell from the network's"


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _numbers(values: Any, count: int) -> list[Any] | None:
    if not isinstance(values, list | tuple) or len(values) != count:
        return None
    return list(values) if all(isinstance(value, int | float) for value in values) else None
