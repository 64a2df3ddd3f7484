"""An exhaustive search over all schedules of a few operations as published.

A schedule is the order in which servers handle requests. A reply arrives at once, or never: a later
reply has the same effect as an immediate reply in another schedule. An operation goes on with the
first quorum of replies. Requests of the operation still on the way may be handled at any later
time, and their replies are of no use. A request without effect on the server is handled when the
reply counts, or not at all. A schedule ends with the last operation.

The operations are the product's; the servers follow Alg. 4. Equal states are looked at once, and
servers with equal states in a configuration of ABD are interchangeable.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from ares.engine.effects import Agree, Operation
from ares.model.configuration import Configuration
from ares.model.errors import Undecodable
from ares.model.identity import CallId, ClientId, ObjectName
from ares.model.messages import Decided
from ares.testing.published.alg4 import beginning, respond

OBJECT = ObjectName("x")


class Asked(NamedTuple):
    """A round of an operation: the configuration's place, a request for each server, the quorum."""

    place: int
    requests: tuple[int, ...]
    needed: int


class Ended(NamedTuple):
    """The end of an operation; ``result`` is None after a failure."""

    result: Any


class Column(NamedTuple):
    """A server in a configuration, with the requests from the operations and the server's replies.

    ``position`` is 0 for all servers of ABD. ``waiting`` and ``heard``: the request of each
    operation's present round, and the reply to the request; -1: no request, or no reply. ``late``:
    requests of earlier rounds.
    """

    server: int
    position: int
    waiting: tuple[int, ...]
    heard: tuple[int, ...]
    late: tuple[int, ...] = ()


class State(NamedTuple):
    """The numbers of the columns of each configuration in order, and of each operation's history.

    A history is -1 before the operation begins.
    """

    columns: tuple[tuple[int, ...], ...]
    histories: tuple[int, ...]


class Count(NamedTuple):
    """The number of all schedules from a state on, and of the schedules without atomicity."""

    schedules: int
    broken: int


Step = tuple[int, State]
"""The number of servers which may take a step, and the state afterwards."""


class ScheduleSearch:
    """All schedules of operations.

    ``begin``: makes each operation, always the same. ``after``: an operation begins after the end
    of these; the last operation ends a schedule. ``broken`` judges the results.
    """

    def __init__(
        self,
        configurations: list[Configuration],
        begin: list[Callable[[], Operation[Any]]],
        after: Mapping[int, tuple[int, ...]],
        broken: Callable[[list[Any]], bool],
    ) -> None:
        self._configurations = configurations
        self._begin = begin
        self._after = after
        self._broken = broken
        self._known: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._counts: dict[State, Count] = {}
        self._next = cache(self._after_history)
        self._served = cache(self._serve)
        self._closed = cache(self._close)
        self._changes = cache(self._would_change)

    @property
    def states(self) -> int:
        """Return the number of different states seen."""
        return len(self._counts)

    def count(self, state: State) -> Count:
        """Count the schedules from a state on."""
        found = self._counts.get(state)
        if found is None:
            if self.ended(state, len(self._begin) - 1):
                found = Count(1, int(self._broken(self.results(state))))
            else:
                schedules = broken = 0
                for times, after in self.steps(state):
                    following = self.count(after)
                    schedules += times * following.schedules
                    broken += times * following.broken
                found = Count(schedules, broken)
            self._counts[state] = found
        return found

    def first(self) -> State:
        """Return the state before the first message."""
        none = (-1,) * len(self._begin)
        columns = [
            tuple(
                self._number(
                    Column(
                        self._number(beginning(c, position, OBJECT)),
                        position if c.dap == "ec" else 0,
                        none,
                        none,
                    )
                )
                for position in range(c.n)
            )
            for c in self._configurations
        ]
        return self._begun(State(tuple(columns), none))

    def ended(self, state: State, operation: int) -> bool:
        history = state.histories[operation]
        return history != -1 and isinstance(self._next(operation, history), Ended)

    def results(self, state: State) -> list[Any]:
        """Return the results of the ended operations, None for the rest."""
        ends = [
            None if history == -1 else self._next(operation, history)
            for operation, history in enumerate(state.histories)
        ]
        return [end.result if isinstance(end, Ended) else None for end in ends]

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every step from a state."""
        for place, columns in enumerate(state.columns):
            for number, times in Counter(columns).items():
                column = self._known[number]
                for operation, request in enumerate(column.waiting):
                    if request != -1:
                        yield times, self.take(state, place, number, operation)
                        if self._changes(column.server, request):
                            yield (
                                times,
                                self._replaced(
                                    state, place, number, self._served(number, request, -1)
                                ),
                            )
                for request in sorted(set(column.late)):
                    yield (
                        times,
                        self._replaced(state, place, number, self._served(number, request, -1)),
                    )

    def take(self, state: State, place: int, number: int, operation: int) -> State:
        """Return the state after a server's reply to an operation's request arrived."""
        request = self._known[number].waiting[operation]
        after = self._replaced(state, place, number, self._served(number, request, operation))
        asked = self._next(operation, state.histories[operation])
        heard = [self._known[each].heard[operation] for each in after.columns[place]]
        replies = sorted(reply for reply in heard if reply != -1)
        if len(replies) < asked.needed:
            return after
        history = self._number((state.histories[operation], tuple(replies)))
        columns = list(after.columns)
        columns[place] = tuple(sorted(self._closed(each, operation) for each in columns[place]))
        histories = list(after.histories)
        histories[operation] = history
        return self._begun(self._asking(State(tuple(columns), tuple(histories)), operation))

    # -- parts of a step ---------------------------------------------------------------------------

    def _number(self, thing: Any) -> int:
        """Return the number of a thing; equal things have the same number."""
        number = self._numbers.setdefault((type(thing), thing), len(self._known))
        if number == len(self._known):
            self._known.append(thing)
        return number

    def _would_change(self, server: int, request: int) -> bool:
        """Return whether a request would change a server's state.

        A request without effect stays without effect: tags and nextC only grow.
        """
        state = self._known[server]
        return respond(state, self._known[request])[0] != state

    def _replaced(self, state: State, place: int, old: int, new: int) -> State:
        columns = list(state.columns[place])
        columns[columns.index(old)] = new
        columns.sort()
        places = (*state.columns[:place], tuple(columns), *state.columns[place + 1 :])
        return State(places, state.histories)

    def _serve(self, number: int, request: int, heard_by: int) -> int:
        """Let a server handle a request; the reply arrives unless ``heard_by`` is -1."""
        column = self._known[number]
        server, reply = respond(self._known[column.server], self._known[request])
        waiting, heard, late = list(column.waiting), list(column.heard), list(column.late)
        if request in waiting:
            waiting[waiting.index(request)] = -1
        else:
            late.remove(request)
        if heard_by != -1:
            heard[heard_by] = self._number(reply)
        now = self._number(server)
        still = tuple(request for request in late if self._changes(now, request))
        return self._number(Column(now, column.position, tuple(waiting), tuple(heard), still))

    def _close(self, number: int, operation: int) -> int:
        """End an operation's round at a server: a request with effect stays on the way."""
        column = self._known[number]
        waiting, heard = list(column.waiting), list(column.heard)
        request, waiting[operation], heard[operation] = waiting[operation], -1, -1
        late = column.late
        if request != -1 and self._changes(column.server, request):
            late = tuple(sorted((*late, request)))
        return self._number(column._replace(waiting=tuple(waiting), heard=tuple(heard), late=late))

    def _begun(self, state: State) -> State:
        """Begin every operation whose predecessor has ended."""
        for operation, history in enumerate(state.histories):
            after = self._after.get(operation, ())
            if history == -1 and all(self.ended(state, other) for other in after):
                histories = list(state.histories)
                histories[operation] = self._number(())
                state = self._asking(State(state.columns, tuple(histories)), operation)
        return state

    def _asking(self, state: State, operation: int) -> State:
        """Send the requests of an operation's next round."""
        asked = self._next(operation, state.histories[operation])
        if isinstance(asked, Ended):
            return state
        columns = []
        for number in state.columns[asked.place]:
            column = self._known[number]
            waiting = list(column.waiting)
            waiting[operation] = asked.requests[column.position]
            columns.append(self._number(column._replace(waiting=tuple(waiting))))
        places = list(state.columns)
        places[asked.place] = tuple(sorted(columns))
        return State(tuple(places), state.histories)

    def _after_history(self, operation: int, history: int) -> Asked | Ended:
        """Return an operation's next round after the given replies, or the operation's end."""
        rounds: list[tuple[int, ...]] = []
        while self._known[history]:
            history, replies = self._known[history]
            rounds.insert(0, replies)
        generator, value = self._begin[operation](), None
        try:
            while True:
                effect: Any = generator.send(value)
                if isinstance(effect, Agree):
                    value = Decided(CallId(0), effect.configuration, ClientId(0))
                elif rounds:
                    ids = effect.configuration.server_ids
                    replies = rounds.pop(0)
                    value = {
                        id: self._known[reply] for id, reply in zip(ids, replies, strict=False)
                    }
                else:
                    return self._asked(effect)
        except StopIteration as end:
            return Ended(end.value)
        except Undecodable:
            return Ended(None)

    def _asked(self, gather: Any) -> Asked:
        c = gather.configuration
        made = gather.requests(CallId(0), *gather.arguments)
        requests = made if isinstance(made, list) else [made] * c.n
        place = [known.id for known in self._configurations].index(c.id)
        return Asked(place, tuple(map(self._number, requests)), c.quorum_size)
