"""What the autopilot says of itself: in its log, once for each thing, and in a sentence for `status`."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from ares.autopilot.judge import Finish, Replace, Verdict
from ares.autopilot.watch import Member
from ares.model.identity import DomainName
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import Reconfigured

DOMAINS_NAMED_MAX = 3

log = logging.getLogger(__name__)


class Bulletin:
    """Deeds and troubles of one round after another. What is wrong is logged when it is new, and may be told again after it was not."""

    def __init__(self) -> None:
        self._doing = self._did = ""
        self._deeds: dict[str, list[DomainName]] = {}
        self._troubles: dict[str, list[DomainName]] = {}
        self._standing: dict[str, list[DomainName]] = {}
        self._gone: set[Member] = set()

    def sentence(self, absent: str) -> str:
        """What is done now, else what cannot be done, else which servers are ``absent``; and what was done last."""
        if self._doing:
            return self._doing
        worries = [f"{why} ({_named(domains)})" for why, domains in self._standing.items()] or ([absent] if absent else [])
        return "; ".join([*worries, *([self._did] if self._did else [])])

    def tell_gone(self, gone: set[Member], after_s: float) -> None:
        """Log the members that are newly gone."""
        for id, identity in sorted(gone - self._gone):
            log.warning("%s is gone: for %g s it was silent, or without its memory", id, after_s, extra={"identity": identity})
        self._gone = gone

    def begin(self, domain: DomainName, verdict: Verdict) -> None:
        """A domain's turn has come."""
        match verdict:
            case Replace(wished, _, unfilled):
                action = _action(verdict, "replacing") + (f", without a spare for {', '.join(unfilled)}," if unfilled else "")
            case Finish(wished):
                action = "completing what was left half done"
            case _:
                return
        self._doing = f"{_now()}: {action} in {domain}"
        log.warning("%s in domain %s", action, domain, extra={"domain": domain, "servers": wished.server_ids})

    def show(self, progress: Progress) -> None:
        """How far it is."""
        begun, _, _ = self._doing.partition("; ")
        self._doing = f"{begun}; {progress.moved + progress.skipped} of {progress.total} objects seen to, {progress.bytes} bytes moved"

    def done(self, domain: DomainName, verdict: Verdict, result: Reconfigured) -> None:
        """The domain has its configuration."""
        action = _action(verdict, "replaced") if result.ours else "completed what somebody else decided"
        self._deeds.setdefault(action, []).append(domain)
        self._did = f"{_now()}: {', '.join(f'{action} in {_named(domains)}' for action, domains in self._deeds.items())}"
        more = {"domain": domain, "index": result.configuration.index, "moved": result.moved, "bytes": result.bytes}
        log.info("done: %s in domain %s, %d objects moved", action, domain, result.moved, extra=more)

    def trouble(self, why: str, domain: DomainName) -> None:
        """Something should be done for the domain and cannot be."""
        self._doing = ""
        self._troubles.setdefault(why, []).append(domain)

    def end_round(self) -> None:
        """All that is wrong was told."""
        for why, domains in self._troubles.items():
            if why not in self._standing:
                log.warning("nothing can be done for %s: %s", _named(domains), why, extra={"domains": len(domains)})
        for why in self._standing.keys() - self._troubles.keys():
            log.info("no longer so: %s", why)
        self._standing, self._troubles, self._deeds, self._doing = self._troubles, {}, {}, ""


def _action(verdict: Verdict, verb: str) -> str:
    return f"{verb} {verdict.describe()}" if isinstance(verdict, Replace) else "completed what was left half done"


def _named(domains: Sequence[DomainName]) -> str:
    shown = ", ".join(domains[:DOMAINS_NAMED_MAX])
    more = len(domains) - DOMAINS_NAMED_MAX
    return f"{shown} and {more} more domain{'s' if more > 1 else ''}" if more > 0 else shown


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
