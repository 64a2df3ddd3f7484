"""When a domain moves to the site whose users ask most of it, and why it does not. Time is an argument.

A domain moves when the clients of another site ask twice as much of it as those of its own, or of any other site, look after look for six seconds. So
two sites that pull both ways leave it where it is, whoever is a little ahead. After a move it rests. All that moves for this reason keeps within a
number of bytes an hour: a user who wants to make work gets so much of it and no more.

What servers say is not believed one by one: a site asks as much as at least half of the configuration's servers say. Time counts only while the
autopilot looks, and a clock that jumps is not believed: neither brings a move about, nor more bytes.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from ares.model.identity import DomainName

LEAD = 2.0
"""How many times as much another site has to ask."""

SUSTAINED_S = 6.0
RATE_MIN = 1.0
"""Requests a second at a server: users that ask less are served where the domain is."""

HOUR_S = 3600.0
TRIED_AGAIN_S = 30.0
"""After a move that could not be made; twice as long after the next, and so on, an hour at most."""

HERE, IDLE, SILENT, EVEN, CUT_OFF, WAITS, RESTS, FULL, BUDGET, MOVES, MOVING, FAILED = (
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
"""Decisions: it is where it is asked for; hardly anybody asks; its servers do not say; no site asks so much more; no quorum
of its servers there would answer; that is not so for long enough; it
moved lately; that site has too few servers; it is too large for now; it moves now; a move is under way; the last one failed."""


class UsageSeen(Struct, frozen=True):
    """What one look shows of a domain. ``site``: where all its servers are; empty: at several. ``per_s``: requests a second and server, by site.

    ``answering``: whether more than half of its servers said that. ``bytes``: of all its objects, about.
    """

    site: str
    per_s: Mapping[str, float]
    bytes: int
    answering: bool = True


class FollowDecision(Struct, frozen=True):
    """``word``: one of those above. ``to``: the site where its users are, if that is another one; it goes there if the word is MOVES."""

    word: str
    why: str
    to: str = ""


class _Course(Struct):
    """Of a domain. ``leader``: the site that asks most by far, since ``since_s``. ``failure``: why it rests, if a move failed; ``failures``: how many
    did since one came about."""

    leader: str = ""
    since_s: float = 0.0
    rests_until_s: float = -math.inf
    failure: str = ""
    failures: int = 0


class FollowPolicy:
    """``rest_s``: how long a domain stays after a move. ``bytes_per_hour``: of all moves together. ``gap_s``: what counts at most of the time between
    two looks."""

    def __init__(self, rest_s: float, bytes_per_hour: int, gap_s: float) -> None:
        self._rest_s = rest_s
        self._bytes_per_hour = bytes_per_hour
        self._gap_s = gap_s
        self._budget = float(bytes_per_hour)
        self._looked_at: float | None = None
        self._watched_s = 0.0
        self._courses: dict[DomainName, _Course] = {}

    def look(self, now: float, domains: Collection[DomainName]) -> None:
        """A look at these domains begins; others are forgotten, but for their rest."""
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
        """Another member leads: who led when this one looked last is of no use; what was moved still counts."""
        for course in self._courses.values():
            course.leader = ""

    def judge(
        self,
        domain: DomainName,
        seen: UsageSeen,
        room: Callable[[str], str],
        reach: Callable[[str], str] = lambda site: "",
    ) -> FollowDecision:
        """Decide what to do with a domain now.

        Args:
            domain: Its name.
            seen: What this look shows of it.
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
                    FAILED, f"{course.failure}; it is tried again in {rest_s:.0f} s", leader
                )
            return FollowDecision(
                RESTS, f"{asks}, and it rests for {rest_s:.0f} s after its last move", leader
            )
        if why := reach(leader):
            course.since_s = self._watched_s
            return FollowDecision(CUT_OFF, f"{asks}, but {why}", leader)
        if (lead_s := self._watched_s - course.since_s) < SUSTAINED_S:
            return FollowDecision(
                WAITS, f"{asks} for {lead_s:.0f} s, and it moves after {SUSTAINED_S:g} s", leader
            )
        if why := room(leader):
            return FollowDecision(FULL, f"{asks}, but {why}", leader)
        if seen.bytes > self._bytes_per_hour:
            return FollowDecision(
                BUDGET,
                f"{asks}, but its {seen.bytes} bytes are more than follow_bytes_per_hour, {self._bytes_per_hour}",
                leader,
            )
        if seen.bytes > self._budget:
            wait_s = (seen.bytes - self._budget) / self._bytes_per_hour * HOUR_S
            return FollowDecision(
                BUDGET,
                f"{asks}, and it waits {wait_s:.0f} s for a part of follow_bytes_per_hour",
                leader,
            )
        return FollowDecision(MOVES, f"{asks}, and it moves there", leader)

    def begun(self, bytes: int) -> None:
        """A move of about so many bytes begins: they are spent, whatever becomes of it."""
        self._budget = max(self._budget - bytes, 0.0)

    def moved(self, domain: DomainName, expected: int, bytes: int) -> None:
        """It ended, and was of so many bytes instead of those ``expected``."""
        self._budget = max(min(self._budget + expected - bytes, float(self._bytes_per_hour)), 0.0)
        self._courses[domain] = _Course(rests_until_s=self._watched_s + self._rest_s)

    def failed(self, domain: DomainName, why: str) -> None:
        """It did not come about."""
        course = self._courses.setdefault(domain, _Course())
        course.rests_until_s, course.failure = (
            self._watched_s + min(TRIED_AGAIN_S * 2.0**course.failures, HOUR_S),
            why,
        )
        course.failures += 1


def _leader(seen: UsageSeen) -> tuple[str, FollowDecision | None]:
    """The site that asks for more than enough to move there, else none and why it stays."""
    if not seen.answering:
        return "", FollowDecision(SILENT, "too few of its servers say who asks for it")
    ranked = sorted(seen.per_s.items(), key=lambda pair: (-pair[1], pair[0]))
    first, most = ranked[0] if ranked else ("", 0.0)
    if most < RATE_MIN:
        return "", FollowDecision(
            IDLE, f"no site asks more than {RATE_MIN:g} time a second of each server"
        )
    if first == seen.site:
        return "", FollowDecision(HERE, f"its own site asks most, {_rate(most)}")
    second = max((per_s for site, per_s in ranked if site != first), default=0.0)
    if most < LEAD * second:
        return "", FollowDecision(
            EVEN,
            f"{first} asks {_rate(most)}, not {LEAD:g} times as much as the next, {_rate(second)}",
            first,
        )
    return first, None


def _rate(per_s: float) -> str:
    return f"{per_s:.1f}/s"


def usual(claims: Iterable[Mapping[str, float]], servers: int) -> dict[str, float]:
    """By site, what at least half of the ``servers`` say that it asks; those that are silent say nothing. What is no rate counts as none."""
    told = list(claims)
    needed = (servers + 1) // 2
    most = {
        site: sorted((_cleaned(claim.get(site, 0.0)) for claim in told), reverse=True)
        for site in {site for claim in told for site in claim}
    }
    return {site: rates[needed - 1] for site, rates in most.items() if len(rates) >= needed}


def _cleaned(per_s: float) -> float:
    return per_s if math.isfinite(per_s) and per_s > 0 else 0.0
