"""The decision when a domain moves to its users' site, and the reasons why it stays.

Time is an argument. A domain moves when the clients of another site ask twice as much as the
clients of the domain's site, or of any third site, in every look for six seconds. Hence two sites
that pull both ways leave the domain at its servers, whichever site is a little ahead. After a move
the domain rests. All moves for this reason keep within a number of bytes an hour: a user can cause
this much work and no more.

The claim of a single server is not believed: a site counts as asking as much as at least half of
the configuration's servers say. Time counts only while the autopilot looks, and a clock that jumps
is not believed: neither brings a move about, nor more bytes.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from ares.model.identity import DomainName
from ares.model.units import HOUR_S

LEAD = 2.0
"""Factor by which another site has to ask more."""

SUSTAINED_S = 6.0
RATE_MIN = 1.0
"""Requests a second at a server; users below this rate are served by the present servers."""

TRIED_AGAIN_S = 30.0
"""Seconds after a failed move until the next try; doubled after each failure, up to an hour."""

(
    FOLLOW_HERE,
    FOLLOW_IDLE,
    FOLLOW_SILENT,
    FOLLOW_EVEN,
    FOLLOW_CUT_OFF,
    FOLLOW_WAITS,
    FOLLOW_RESTS,
    FOLLOW_FULL,
    FOLLOW_BUDGET,
    FOLLOW_MOVES,
    FOLLOW_MOVING,
    FOLLOW_FAILED,
) = (
    *(
        "here",
        "idle",
        "silent",
        "even",
        "cut-off",
        "waits",
        "rests",
        "no-room",
        "budget",
        "moves",
        "moving",
        "failed",
    ),
)
"""The decisions: the words of FOLLOW_HERE and its kin.

here: the own site asks most. idle: hardly any client asks. silent: too few servers say their use.
even: no site asks enough more. cut-off: no quorum of servers at the users' site would answer.
waits: the users' site has not asked most for long enough. rests: the domain moved lately. no-room:
the users' site has too few servers. budget: the domain is too large for now. moves: the domain
moves now. moving: a move is under way. failed: the last move failed.
"""


class ObservedUsage(Struct, frozen=True):
    """The result of a look at a domain.

    ``site``: the site of all its servers; empty: several sites. ``per_s``: requests a second and
    server, by site. ``answering``: more than half of the servers reported. ``bytes``: approximate
    bytes of all objects.
    """

    site: str
    per_s: Mapping[str, float]
    bytes: int
    answering: bool = True


class FollowDecision(Struct, frozen=True):
    """A decision. ``word``: a decision from ``FOLLOW_HERE`` to ``FOLLOW_FAILED``, see above.

    ``to``: the users' site, if different; the domain moves to this site if the word is `moves`.
    """

    word: str
    why: str
    to: str = ""


class _Course(Struct):
    """The course of a domain.

    ``leader``: the site that asks most by far, since ``since_s``. ``failure``: why the domain
    rests, after a failed move. ``failures``: failed moves since the last success.
    """

    leader: str = ""
    since_s: float = 0.0
    rests_until_s: float = -math.inf
    failure: str = ""
    failures: int = 0


class FollowPolicy:
    """The policy of following domains.

    ``rest_s``: the rest of a domain after a move. ``bytes_per_hour``: for all moves together.
    ``gap_s``: the most that counts of the time between two looks.
    """

    def __init__(self, rest_s: float, bytes_per_hour: int, gap_s: float) -> None:
        self._rest_s = rest_s
        self._bytes_per_hour = bytes_per_hour
        self._gap_s = gap_s
        self._budget = float(bytes_per_hour)
        self._looked_at: float | None = None
        self._watched_s = 0.0
        self._courses: dict[DomainName, _Course] = {}

    def look(self, now: float, domains: Collection[DomainName]) -> None:
        """Begin a look at ``domains``; forget other domains, except for their rest."""
        passed_s = (
            0.0 if self._looked_at is None else min(max(now - self._looked_at, 0.0), self._gap_s)
        )
        self._looked_at = now
        self._watched_s += passed_s
        self._budget = min(
            self._budget + passed_s / HOUR_S * self._bytes_per_hour, float(self._bytes_per_hour)
        )
        kept = {
            domain: course
            for domain, course in self._courses.items()
            if domain in domains or course.rests_until_s > self._watched_s
        }
        self._courses = {domain: kept.get(domain) or _Course() for domain in {*kept, *domains}}

    def stand_down(self) -> None:
        """Forget the leading sites, because another member leads; moved bytes still count."""
        for course in self._courses.values():
            course.leader = ""

    def judge(
        self,
        domain: DomainName,
        seen: ObservedUsage,
        room: Callable[[str], str],
        reach: Callable[[str], str] = lambda site: "",
    ) -> FollowDecision:
        """Decide the action for a domain now.

        Args:
            domain: The name of the domain.
            seen: The result of this look.
            room: Returns why a site cannot take the domain; empty: it can.
            reach: Returns why the domain's servers at a site would not serve it now; empty: they
                would. A site counts as asking most only since it was within reach in every look:
                a move to a site that is cut off would stop reads and writes.
        """
        course = self._courses[domain]
        leader, early = _leader(seen)
        if course.leader != leader:
            course.leader, course.since_s = leader, self._watched_s
        if early is not None:
            return early
        asks = f"{leader} asks {_rate(seen.per_s[leader])}"
        if (rest_s := course.rests_until_s - self._watched_s) > 0:
            if course.failure:
                return FollowDecision(
                    FOLLOW_FAILED, f"{course.failure}; it is tried again in {rest_s:.0f} s", leader
                )
            return FollowDecision(
                FOLLOW_RESTS, f"{asks}, and it rests for {rest_s:.0f} s after its last move", leader
            )
        if why := reach(leader):
            course.since_s = self._watched_s
            return FollowDecision(FOLLOW_CUT_OFF, f"{asks}, but {why}", leader)
        if (lead_s := self._watched_s - course.since_s) < SUSTAINED_S:
            return FollowDecision(
                FOLLOW_WAITS,
                f"{asks} for {lead_s:.0f} s, and it moves after {SUSTAINED_S:g} s",
                leader,
            )
        if why := room(leader):
            return FollowDecision(FOLLOW_FULL, f"{asks}, but {why}", leader)
        if seen.bytes > self._bytes_per_hour:
            return FollowDecision(
                FOLLOW_BUDGET,
                f"{asks}, but its {seen.bytes} bytes are more than follow_bytes_per_hour, "
                f"{self._bytes_per_hour}",
                leader,
            )
        if seen.bytes > self._budget:
            wait_s = (seen.bytes - self._budget) / self._bytes_per_hour * HOUR_S
            return FollowDecision(
                FOLLOW_BUDGET,
                f"{asks}, and it waits {wait_s:.0f} s for a part of follow_bytes_per_hour",
                leader,
            )
        return FollowDecision(FOLLOW_MOVES, f"{asks}, and it moves there", leader)

    def begun(self, bytes: int) -> None:
        """Count the bytes of a beginning move as spent, even if the move fails."""
        self._budget = max(self._budget - bytes, 0.0)

    def moved(self, domain: DomainName, expected: int, bytes: int) -> None:
        """Count a finished move, which took ``bytes`` instead of ``expected``."""
        self._budget = max(min(self._budget + expected - bytes, float(self._bytes_per_hour)), 0.0)
        self._courses[domain] = _Course(rests_until_s=self._watched_s + self._rest_s)

    def failed(self, domain: DomainName, why: str) -> None:
        """Note a failed move, and let the domain rest."""
        course = self._courses.setdefault(domain, _Course())
        course.rests_until_s, course.failure = (
            self._watched_s + min(TRIED_AGAIN_S * 2.0**course.failures, HOUR_S),
            why,
        )
        course.failures += 1


def _leader(seen: ObservedUsage) -> tuple[str, FollowDecision | None]:
    """Return the site which asks enough for a move, or empty with the reason to stay."""
    if not seen.answering:
        return "", FollowDecision(
            FOLLOW_SILENT, "too few of its servers report the sites of their clients"
        )
    ranked = sorted(seen.per_s.items(), key=lambda pair: (-pair[1], pair[0]))
    first, most = ranked[0] if ranked else ("", 0.0)
    if most < RATE_MIN:
        return "", FollowDecision(
            FOLLOW_IDLE, f"no site asks more than {RATE_MIN:g} time a second of each server"
        )
    if first == seen.site:
        return "", FollowDecision(FOLLOW_HERE, f"its own site asks most, {_rate(most)}")
    second = max((per_s for site, per_s in ranked if site != first), default=0.0)
    if most < LEAD * second:
        return "", FollowDecision(
            FOLLOW_EVEN,
            f"{first} asks {_rate(most)}, not {LEAD:g} times as much as the next, {_rate(second)}",
            first,
        )
    return first, None


def _rate(per_s: float) -> str:
    return f"{per_s:.1f}/s"


def usual(claims: Iterable[Mapping[str, float]], servers: int) -> dict[str, float]:
    """Return by site the rate reported by at least half of the ``servers``.

    A silent server, or a value that is no rate, counts as 0.
    """
    claimed = list(claims)
    needed = (servers + 1) // 2
    most = {
        site: sorted((_cleaned(claim.get(site, 0.0)) for claim in claimed), reverse=True)
        for site in {site for claim in claimed for site in claim}
    }
    return {site: rates[needed - 1] for site, rates in most.items() if len(rates) >= needed}


def _cleaned(per_s: float) -> float:
    return per_s if math.isfinite(per_s) and per_s > 0 else 0.0
