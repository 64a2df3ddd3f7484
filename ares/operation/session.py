"""A session runs operations: it numbers the calls, tallies the answers, sends again, keeps deadlines. No I/O, no clock: ``now`` is an argument.

The shell around it (ares/client/runner.py, or a simulator) takes ``contacts``, the outbox, ``asks`` and ``hints`` after every call and sees to
them, hands replies to ``receive``, and calls ``tick`` every TICK_S while ``busy``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ares.model.configuration import Configuration, Server
from ares.model.errors import ConfigurationRefused, ElementRefused, NotAuthorized, Superseded, Unavailable, Uncertain
from ares.model.identity import DEFAULT_DOMAIN, NO_DOMAIN, CallId, ConfigurationId, DomainName, ServerId
from ares.model.messages import AnyMessage, Introduce, Reason, Refused
from ares.model.quorum import Outcome
from ares.operation.effects import Gather
from ares.operation.jobs import Jobs
from ares.operation.readiness import Readiness
from ares.operation.rounds import RESEND_S_MAX, Denial, Refusal, Round, Task, Unfit, Unproven, begin

TICK_S = 0.025
STALL_S = 1.0
HEDGE_USUAL = 3.0
"""A query that takes so many times as long as queries usually do, and at least a tick, is put to the servers that were spared."""

USUAL_ROUNDS = 64
DENIED_S = 0.25
HINT_AGAIN_S = 2.0


_KINDS: dict[Reason, type[Refusal]] = {Reason.NOT_AUTHORIZED: Denial, Reason.BAD_ELEMENT: Unfit}


class Session(Jobs):
    """All operations of one client. ``hints``: domains whose hint is wanted, to be answered with ``hinted``. ``contacts``: servers of
    configurations that were not spoken to before. ``readiness``: which servers are likely to answer soonest. ``troubles``: why servers cannot be
    reached, as far as that is known."""

    def __init__(self, turn: int = 0) -> None:
        super().__init__()
        self.hints: list[DomainName] = []
        self.contacts: list[Server] = []
        self.readiness = Readiness(turn)
        self.troubles: Mapping[ServerId, str] = {}
        self._outbox: defaultdict[ServerId, list[AnyMessage]] = defaultdict(list)
        self._last_call = 0
        self._rounds: dict[int, Round] = {}
        self._met: set[ConfigurationId] = set()
        self._hints_wanted: set[DomainName] = set()
        self._hint_again_at: dict[DomainName, float] = {}
        self._usual_s = 0.0

    @property
    def has_orders(self) -> bool:
        """Whether there is anything for the shell to take, or to wake it for."""
        return bool(self._outbox or self.asks or self.hints or self._pauses)

    # -- rounds ---------------------------------------------------------------------------------------------------------

    def _drop(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.call is not None:
                del self._rounds[task.call]
                task.call = None

    def _ask(self, task: Task, gather: Gather) -> None:
        call = task.call = self._last_call = self._last_call + 1
        round = self._rounds[call] = begin(call, task, gather, self._now)
        if gather.configuration.id not in self._met:
            self._meet(gather.configuration, call)
        requests, order, outbox = round.requests, gather.order, self._outbox
        if not isinstance(requests, list):
            for server in round.asked if order is None else order.asked:
                outbox[server].append(requests)
        elif order is None:
            for server, request in zip(round.asked, requests, strict=True):
                outbox[server].append(request)
        else:
            for position in order.first:
                outbox[round.asked[position]].append(requests[position])

    def _meet(self, configuration: Configuration, call: int) -> None:
        """First contact: all servers are to know the configuration, those too that this client would not ask soon. Each knows c0 by itself."""
        self._met.add(configuration.id)
        self.contacts.extend(configuration.servers)
        if configuration.domain != NO_DOMAIN and (configuration.domain, configuration.index) != (DEFAULT_DOMAIN, 0):
            for server in configuration.server_ids:
                self._outbox[server].append(Introduce(CallId(call), configuration))

    def _ask_rest(self, round: Round) -> None:
        unasked, round.unasked = round.unasked, ()
        for server in unasked:
            self._outbox[server].append(round.request_for(server))

    def take_outbox(self) -> dict[ServerId, list[AnyMessage]]:
        """What is to be posted, leaving nothing."""
        outbox, self._outbox = self._outbox, defaultdict(list)
        sent = self.readiness.sent
        for server, messages in outbox.items():
            if type(messages[-1]) is not Introduce:  # nobody answers that
                sent[server] = messages[-1].call
        self.readiness.next_turn()
        return outbox

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Replies from a server. Late, doubled and unexpected ones are dropped."""
        self._now = now
        if messages:
            self.readiness.heard(server, messages[-1].call)
        rounds = self._rounds
        for message in messages:
            round = rounds.get(message.call)
            if round is None:
                if isinstance(message, Refused) and message.call == 0:
                    self._refused_all(server, message)
                continue
            if type(message) is round.expected:
                if round.answer(server, message):
                    self._look(round)
            elif isinstance(message, Refused):
                self._refused(round, server, message)

    def _look(self, round: Round) -> None:
        """A quorum is there: go on, unless the round wants more."""
        gather = round.gather
        if gather.settled is None or gather.settled(round.answers) or round.complete:
            self._conclude(round)
        elif round.patient_until is None and gather.patience_s is not None:
            round.patient_until = self._now + gather.patience_s(round.answers)
            self._ask_rest(round)

    def _conclude(self, round: Round) -> None:
        if round.gather.order is not None:
            self._usual_s += (self._now - round.started - self._usual_s) / USUAL_ROUNDS
        del self._rounds[round.call]
        round.task.call = None
        self._step(round.task, round.answers)

    def _throw(self, round: Round, error: Exception) -> None:
        del self._rounds[round.call]
        round.task.call = None
        self._step(round.task, None, error)

    def _denied(self, round: Round) -> None:
        """No quorum will do this for this client: give up when all have said so, or soon, for a server that is down says nothing.

        Where that is not proven, the servers may have been replaced by others, and somebody else be at their addresses: the hint tells.
        """
        if round.outcome is Outcome.REACHED:
            self._look(round)
        elif round.outcome is Outcome.UNREACHABLE and any(isinstance(why, Unproven) for why in round.refusals.values()):
            self._give_up_soon(round)
            self._want_hint(round.gather.configuration.domain, urgent=True)
        elif round.complete:
            self._throw(round, self._unavailable(round))
        elif round.outcome is Outcome.UNREACHABLE:
            self._give_up_soon(round)

    def _give_up_soon(self, round: Round) -> None:
        round.give_up_at = min(self._now + DENIED_S, round.give_up_at or self._now + DENIED_S)

    def _unavailable(self, round: Round) -> Uncertain:
        untouched = sum(isinstance(why, Refusal) and why.untouched for why in round.refusals.values()) == len(round.asked)
        denials = {server: why for server, why in round.refusals.items() if isinstance(why, Denial)}
        proven = {server: why for server, why in denials.items() if not isinstance(why, Unproven)}
        if round.outcome is Outcome.UNREACHABLE and (proven or len(round.asked) - len(denials) < round.needed):
            server, why = next(iter((proven or denials).items()))
            return NotAuthorized(f"{server}: {why}", round.story(), untouched)
        unfit = round.outcome is Outcome.UNREACHABLE and any(isinstance(why, Unfit) for why in round.refusals.values())
        kind = ElementRefused if unfit else Unavailable
        error = kind(round.needed, len(round.answers), round.missing(self.troubles), round.story())
        error.untouched = untouched
        return error

    def _refused(self, round: Round, server: ServerId, refusal: Refused) -> None:
        configuration = round.gather.configuration
        if refusal.reason is Reason.CONFLICTING_SUCCESSOR:
            self._throw(round, ConfigurationRefused(f"{server} refuses a second decision: {refusal.detail}. Nothing was changed there"))
            return
        if server in round.refusals or server in round.answers:  # it answered, then lost its memory: a doubled request is none to insist on
            return
        if refusal.reason is Reason.UNKNOWN_CONFIGURATION:
            self._outbox[server].append(Introduce(CallId(round.call), configuration))
            self._outbox[server].append(round.request_for(server))
            return
        denied = refusal.reason is Reason.NOT_AUTHORIZED
        kind = _KINDS.get(refusal.reason, Refusal)
        why = (Unproven if denied and not refusal.call else kind)(refusal.detail)
        why.untouched = refusal.call == round.call and not round.resent
        round.refuse(server, why)
        self._ask_rest(round)
        if denied:
            self._denied(round)
            return
        if round.outcome is Outcome.REACHED:
            self._look(round)
        elif round.outcome is Outcome.UNREACHABLE:
            if refusal.reason is Reason.OTHER_CLUSTER:
                self._throw(round, ConfigurationRefused(f"{server} refuses: {refusal.detail}"))
            else:
                self._want_hint(configuration.domain, urgent=True)

    def _refused_all(self, server: ServerId, refusal: Refused) -> None:
        """A server could not read a whole batch: count it as refusing whatever still waits for it."""
        for round in list(self._rounds.values()):
            if server in round.asked and round.call in self._rounds:
                self._refused(round, server, refusal)

    # -- stalls ---------------------------------------------------------------------------------------------------------

    def _want_hint(self, domain: DomainName, urgent: bool = False) -> None:
        if domain not in self._hints_wanted and (urgent or self._now >= self._hint_again_at.get(domain, 0.0)):
            self._hints_wanted.add(domain)
            self.hints.append(domain)

    def hinted(self, domain: DomainName, newer: Configuration | None, now: float) -> None:
        """The last finalized configuration that the consensus service knows of ``domain``, if any: rounds in older ones go on there."""
        self._now = now
        self._hints_wanted.discard(domain)
        self._hint_again_at[domain] = now + HINT_AGAIN_S
        for round in list(self._rounds.values()):
            configuration = round.gather.configuration
            if round.call not in self._rounds or configuration.domain != domain:
                continue
            if newer is not None and newer.index > configuration.index and newer.cluster_id == configuration.cluster_id:
                self._throw(round, Superseded(newer))
            elif round.outcome is Outcome.UNREACHABLE:
                if round.storing and not round.complete:  # whether anything was stored is known when all have said that they refuse
                    self._give_up_soon(round)
                else:
                    self._throw(round, self._unavailable(round))

    def tick(self, now: float) -> None:
        """Let time pass: wake pauses, send again, ask for hints, end what took too long."""
        self.wake(now)
        for round in list(self._rounds.values()):
            if round.call in self._rounds:
                self._age(round)
        for job in [job for job in self._jobs if job.deadline <= now]:
            self._expire(job)

    def _age(self, round: Round) -> None:
        now = self._now
        if round.give_up_at is not None and now >= round.give_up_at:
            self._suspect(round)
            self._throw(round, self._unavailable(round))
        elif round.patient_until is not None:
            if now >= round.patient_until:
                self._suspect(round)
                self._conclude(round)
        elif now >= round.task.job.deadline:
            self._throw(round, self._unavailable(round))
        else:
            if round.unasked and now >= round.started + max(TICK_S, HEDGE_USUAL * self._usual_s):
                self._ask_rest(round)
            if now >= round.resend_at:
                self._suspect(round)
                round.unasked = ()
                round.resend_after_s = min(round.resend_after_s * 2, max(RESEND_S_MAX, round.resend_after_s))
                round.resend_at = now + round.resend_after_s
                for server in round.asked:
                    if server not in round.answers and server not in round.refusals:
                        self._outbox[server].append(round.request_for(server))
            if now - round.started >= STALL_S and len(round.answers) < round.needed:
                self._want_hint(round.gather.configuration.domain)

    def _suspect(self, round: Round) -> None:
        silent = (server for server in round.asked if server not in round.answers and server not in round.unasked)
        self.readiness.suspects.update(silent)
