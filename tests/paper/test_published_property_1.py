"""Property 1 of ARES II (section 6.1) for EC-DAP II as published, client and servers, Alg. 3 and 4.

C1: a get-data or get-tag after a put-data returns at least its tag. C2: get-data returns a pair of
a put-data that began before the get-data ended, or t0; the value may be bottom. All schedules of
small scopes, and random schedules with crashes and with a finalized successor.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from ares.engine.effects import Operation
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import Undecodable
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId
from ares.model.messages import CollectConfig, QueryList, WriteConfig
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE
from ares.replica.replica import Replica
from ares.testing.published.alg4 import beginning, respond
from ares.testing.published.ares_2022 import AresClient
from ares.testing.published.data_access import BOTTOM
from ares.testing.published.ec_dap import EcDap
from tests.paper.all_schedules import OBJECT, Count, ScheduleSearch
from tests.protocol.protocol_world import IDENTITY, servers

SMALL = Configuration.ec(servers(0, 1, 2, 3), 2, 1).at(DEFAULT_DOMAIN, 0)
CONFIGURATIONS = [
    SMALL,
    Configuration.ec(servers(0, 1, 2, 3, 4), 3, 2).at(DEFAULT_DOMAIN, 0),
    Configuration.ec(servers(0, 1, 2, 3, 4, 5), 2, 2).at(DEFAULT_DOMAIN, 0),
    Configuration.ec(servers(0, 1, 2, 3, 4, 5, 6), 3, 3).at(DEFAULT_DOMAIN, 0),
]
FINAL = Successor(SMALL.at(DEFAULT_DOMAIN, 1, SMALL.id), Status.FINALIZED)


def value_of(tag: Tag) -> bytes:
    return b"value of %d.%d" % (tag.number, tag.writer)


# -- all schedules ---------------------------------------------------------------------------------


def put(number: int) -> Operation[Any]:
    tag = Tag(number, 1)
    return EcDap(SMALL).put_data(OBJECT, tag, value_of(tag))


def get_data() -> Operation[Any]:
    return EcDap(SMALL).get_data(OBJECT)


def get_tag() -> Operation[Any]:
    return EcDap(SMALL).get_tag(OBJECT)


def finalize() -> Operation[Any]:
    return AresClient(ClientId(9), SMALL).put_config(SMALL, FINAL)


def counted(
    operations: list[Callable[[], Operation[Any]]],
    after: dict[int, tuple[int, ...]],
    completed: int,
) -> Count:
    """Search all schedules; the last operation begins after the put of the tag ``completed``."""

    def broken(results: list[Any]) -> bool:
        if results[-1] is None:  # get-data failed
            return True
        found, _ = results[-1]
        tag, value = found if isinstance(found, tuple) else (found, BOTTOM)
        of_the_tag = TOMBSTONE if tag == TAG_ZERO else value_of(tag)
        return tag < Tag(completed, 1) or (value is not BOTTOM and value != of_the_tag)

    search = ScheduleSearch([SMALL], operations, after, broken)
    return search.count(search.first())


@pytest.mark.parametrize("get", [get_data, get_tag])
@pytest.mark.parametrize(
    ("puts", "after", "completed"),
    [((1, 2), {2: (0,)}, 1), ((2, 1), {2: (0,)}, 2), ((1, 2, 3), {1: (0,), 3: (1,)}, 2)],
    ids=["a put beside", "a lower put beside", "a put beside, two before"],
)
def test_in_all_schedules_with_delta_puts_beside_a_get_property_1_holds(
    puts, after, completed, get
):
    """Delta is 1, and there are four servers with k = 2 (Theorems 3 and 4, Lemmas 1 and 2)."""
    operations = [lambda number=number: put(number) for number in puts]
    found = counted([*operations, get], after, completed)
    assert found.schedules > 1_000_000
    assert found.broken == 0


def test_in_all_schedules_a_finalized_successor_keeps_property_1():
    """Alg. 4:10-13: a List' keeps the tags."""
    found = counted([lambda: put(1), finalize, get_data], {2: (0,)}, 1)
    assert found.schedules > 1_000_000
    assert found.broken == 0


def test_control_with_two_puts_beside_a_get_some_schedules_break_c1():
    operations = [lambda: put(1), lambda: put(2), lambda: put(3), get_data]
    assert counted(operations, {1: (0,), 2: (1,), 3: (0,)}, 1).broken > 0


# -- random schedules ------------------------------------------------------------------------------


class DapAction(Struct, eq=False):
    """An operation of a random schedule, and its end; ``beside``: the puts beside a get-data."""

    kind: str
    tag: Tag
    operation: Any
    began: int
    asked: dict[int, Any] = {}
    replies: dict[int, Any] = {}
    beside: list["DapAction"] = []
    ended: int | None = None
    failed: bool = False
    value: Any = None


class RandomSchedule:
    """Puts and gets of a configuration; servers crash, writers die, a successor is finalized.

    At most ``beside_max`` puts are beside a get-data.
    """

    def __init__(self, c: Configuration, seed: int, beside_max: int) -> None:
        self.c, self.rng, self.beside_max = c, random.Random(seed), beside_max
        self.states = [beginning(c, position, OBJECT) for position in range(c.n)]
        self.actions: list[DapAction] = []
        self.running: list[DapAction] = []
        crashes = self.rng.randint(0, c.n - c.quorum_size)
        self.crashing = dict.fromkeys(self.rng.sample(range(c.n), crashes), 0)
        for server in self.crashing:
            self.crashing[server] = self.rng.randint(0, 300)

    def run(self) -> list[DapAction]:
        """Return the actions; at the end every message has arrived, but for crashed servers."""
        finalized_at = self.rng.choice([1000, self.rng.randint(0, 300)])
        for moment in range(400):
            if moment >= finalized_at and self.rng.random() < 0.2:
                server = self.rng.randrange(self.c.n)
                self._serve(server, WriteConfig(CallId(0), self.c.id, FINAL))
            if self.rng.random() < 0.2:
                self._begin(moment)
            self._deliver(moment)
        moment = 400
        while self._deliver(moment):
            moment += 1
        return self.actions

    def _serve(self, server: int, request: Any) -> Any:
        self.states[server], reply = respond(self.states[server], request)
        return reply

    def _begin(self, moment: int) -> None:
        puts = [each for each in self.running if each.kind == "put-data"]
        gets = [each for each in self.running if each.kind == "get-data"]
        kind = self.rng.choice(["put-data", "put-data", "get-data", "get-tag"])
        most = self.beside_max
        if (kind == "put-data" and any(len(get.beside) >= most for get in gets)) or (
            kind == "get-data" and len(puts) > most
        ):
            return
        dap, tag = EcDap(self.c), TAG_ZERO
        if kind == "put-data":
            tag = Tag(1 + moment // 20 + self.rng.randint(0, 3), moment)
            operation: Any = dap.put_data(OBJECT, tag, value_of(tag))
        else:
            operation = (dap.get_data if kind == "get-data" else dap.get_tag)(OBJECT)
        gather = operation.send(None)
        made = gather.requests(CallId(moment), *gather.arguments)
        requests = made if isinstance(made, list) else [made] * self.c.n
        action = DapAction(kind, tag, operation, moment, dict(enumerate(requests)))
        if kind == "put-data":
            for get in gets:
                get.beside.append(action)
            if self.rng.random() < 0.02:  # the writer dies: few servers hear of the put
                for server in self.rng.sample(range(self.c.n), self.rng.randint(1, self.c.n)):
                    del action.asked[server]
        else:
            action.beside += puts
        self.actions.append(action)
        self.running.append(action)

    def _deliver(self, moment: int) -> bool:
        """Let a server answer a request; return False if none is on the way."""
        ways = [
            (action, server)
            for action in self.actions
            for server in action.asked
            if moment < self.crashing.get(server, moment + 1)
        ]
        if not ways:
            return False
        action, server = self.rng.choice(ways)
        action.replies[server] = self._serve(server, action.asked.pop(server))
        if action.ended is None and len(action.replies) == self.c.quorum_size:
            self._end(action, moment)
        return True

    def _end(self, action: DapAction, moment: int) -> None:
        action.ended = moment
        self.running.remove(action)
        ids = self.c.server_ids
        try:
            action.operation.send({ids[at]: reply for at, reply in action.replies.items()})
        except StopIteration as end:
            if action.kind == "get-data":
                (action.tag, action.value), _ = end.value
            elif action.kind == "get-tag":
                action.tag, _ = end.value
        except Undecodable:
            action.failed = True


def broken(actions: list[DapAction]) -> list[str]:
    """Return the pairs against C1, the pairs against C2, and operations that failed."""
    puts = [action for action in actions if action.kind == "put-data"]
    gets = [action for action in actions if action.kind != "put-data" and action.ended is not None]
    found = [f"{get} failed" for get in gets if get.failed]
    for get in gets:
        for each in puts:
            if each.ended is not None and each.ended < get.began and get.tag < each.tag:
                found.append(f"C1: {get} after {each}")
        if get.kind == "get-data" and get.tag != TAG_ZERO:
            source = [each for each in puts if each.tag == get.tag and each.began <= get.ended]
            if not source or get.value not in (value_of(get.tag), BOTTOM):
                found.append(f"C2: {get} was never put")
    return found


@pytest.mark.parametrize("c", CONFIGURATIONS, ids=lambda c: f"n {c.n}, k {c.k}, delta {c.delta}")
def test_in_random_schedules_property_1_holds_and_operations_end(c):
    """Sections 3 and 6.1, of Alg. 3:1-31 with the servers of Alg. 4."""
    answered = 0
    for seed in range(200):
        actions = RandomSchedule(c, seed, c.delta).run()
        assert broken(actions) == []
        gets = [action for action in actions if action.kind != "put-data"]
        assert all(action.ended is not None for action in gets)
        answered += sum(action.value not in (None, BOTTOM, TOMBSTONE) for action in gets)
    assert answered > 100


def test_control_with_more_than_delta_puts_beside_a_get_random_schedules_break_c1():
    c = CONFIGURATIONS[1]
    found = [broken(RandomSchedule(c, seed, c.delta + 1).run()) for seed in range(200)]
    assert any(sentence.startswith("C1") for each in found for sentence in each)


# -- after gc-config -------------------------------------------------------------------------------


class Alg4Servers:
    """Servers of SMALL by Alg. 4."""

    def __init__(self) -> None:
        self.states = [beginning(SMALL, position, OBJECT) for position in range(SMALL.n)]

    def run(self, operation: Operation[Any], *heard: int) -> Any:
        """Run an operation of one round, whose requests arrive at these servers only."""
        gather: Any = operation.send(None)
        made = gather.requests(CallId(0), *gather.arguments)
        requests = made if isinstance(made, list) else [made] * SMALL.n
        replies = {}
        for server in heard:
            self.states[server], reply = respond(self.states[server], requests[server])
            replies[SMALL.server_ids[server]] = reply
        try:
            operation.send(replies)
        except StopIteration as end:
            return end.value
        raise AssertionError("a second round")

    def collect(self, *at: int) -> None:
        """Handle WRITE-CONFIG of a finalized successor, and GC-CONFIG (Alg. 4:31-43)."""
        for server in at:
            for message in (WriteConfig, CollectConfig):
                request = message(CallId(0), SMALL.id, FINAL)
                self.states[server], _ = respond(self.states[server], request)


def test_after_gc_config_a_completed_put_breaks_c1_by_the_printed_lines():
    """Alg. 4:18 leaves out line 19, on which Lemma 2 rests: "every server inserts the pair".

    Put-data is complete, and no server has its tag. The put's replies name the finalized successor,
    where the writer goes on: ARES II is not harmed.
    """
    those = Alg4Servers()
    those.run(put(1), 0, 1, 2, 3)
    those.collect(0, 1, 2, 3)
    assert those.run(get_data(), 0, 1, 2)[0] == (Tag(1, 1), BOTTOM)  # Lemma 2, case (ii)
    cs = those.run(put(2), 0, 1, 2)
    assert cs == [FINAL] * 3
    assert those.run(get_tag(), 0, 1, 2)[0] == Tag(1, 1)
    assert those.run(get_data(), 0, 1, 2)[0] == (Tag(1, 1), BOTTOM)


def test_after_gc_config_a_get_data_may_find_no_tag_in_k_lists():
    """No put is beside the get-data, and Alg. 3:13-15 have no else: Theorem 4 (b) lacks the case.

    Each server's List stays as it was when GC-CONFIG arrived, and puts go on at the rest.
    """
    those = Alg4Servers()
    for number in (1, 2):
        those.run(put(number), 1, 2, 3)
    those.collect(0, 1)
    for number in (3, 4):
        those.run(put(number), 1, 2, 3)
    those.collect(3)
    with pytest.raises(Undecodable, match="no tag is in 2 of 3 Lists"):
        those.run(get_data(), 0, 1, 3)


def test_after_gc_config_servers_of_this_project_forget_the_tags_that_lemma_2_keeps():
    """The transcription takes an empty List as bottom with t0, and goes to the successor, too."""
    replica = Replica(SMALL.servers[0].id, IDENTITY.format(0), SMALL)
    request = QueryList(CallId(1), SMALL.id, OBJECT)
    replica.handle(WriteConfig(CallId(0), SMALL.id, FINAL))
    assert replica.handle(request).entries[0].tag == TAG_ZERO
    replica.handle(CollectConfig(CallId(0), SMALL.id, FINAL))
    empty = replica.handle(request)
    assert empty.entries == ()
    operation: Any = get_data()
    operation.send(None)
    with pytest.raises(StopIteration) as end:
        operation.send(dict.fromkeys(SMALL.server_ids[:3], empty))
    assert end.value.value == ((TAG_ZERO, BOTTOM), [FINAL] * 3)
