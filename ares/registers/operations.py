"""Read, write, delete and stat of an object, in both generations (Alg. 1).

ARES II (piggyback) starts at the last finalized configuration it knows and follows the successors
in replies. Plain ARES learns the sequence in rounds of their own, before and after. The generations
are the same otherwise, and differ in two functions: ``query`` and ``propagate``.
"""

from collections.abc import Callable
from typing import TypeVar

from ares.dap.primitives import DataAccess, DataResult, TagResult
from ares.dap.reading import BRIEF
from ares.engine.effects import Operation, Pause, Together
from ares.engine.phases import PHASE_1, PHASE_2, READ_OBJECT, WRITE_OBJECT, phase
from ares.model.configuration import Configuration
from ares.model.errors import (
    ElementRefused,
    LeftBehind,
    NoTagLeft,
    NotAuthorized,
    ObjectNotFound,
    Superseded,
    Unavailable,
    Uncertain,
    Undecodable,
    WriteOnceRefusal,
)
from ares.model.identity import ConfigurationId, ObjectName, shown
from ares.model.tag import NUMBER_LAST, TAG_ZERO, Tag, TakenNumbers
from ares.model.value import LOST, TOMBSTONE, WITHHELD, Value
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View

LOOK_AGAIN_S_MIN = 0.02
LOOK_AGAIN_S_MAX = 1.0

Answer = TypeVar("Answer", DataResult, TagResult)
Ask = Callable[[DataAccess, ObjectName], Operation[Answer]]


@phase(READ_OBJECT)
def read(view: View, object: ObjectName) -> Operation[DataResult]:
    """Return the newest version and its value; TOMBSTONE for an absent object (Alg. 1:31-48).

    Fast read: a version at a quorum to stay (:func:`at_quorum`) needs no write back. t0 never needs
    a write back. Raises :class:`LeftBehind` for an object left behind by a move.
    """
    answers = yield from query(view, DataAccess.get_data, object)
    found, _ = _settled(view, answers) or (yield from _complete(view, object, answers))
    if found.value is LOST:
        raise LeftBehind(object, found.tag)
    return found


@phase(WRITE_OBJECT)
def write(view: View, object: ObjectName, value: Value) -> Operation[Tag]:
    """Store ``value`` under a new tag, and return the tag (Alg. 1:7-24)."""
    taken = view.tags.begin(object)
    try:
        answers = yield from query(view, DataAccess.get_tag, object)
        tag, _ = yield from write_above(view, object, value, newest(answers).tag.number, taken)
    finally:
        view.tags.end(object, taken)
    return tag


@phase(WRITE_OBJECT)
def delete(view: View, object: ObjectName) -> Operation[Tag]:
    """Write a tombstone.

    Raises :class:`ObjectNotFound`, and writes no tombstone, if the object is absent. An object
    without a settled version counts as present: the newest completed version can only be hidden by
    writes that did not complete, and such a write may be ordered before this delete.
    """
    taken = view.tags.begin(object)
    try:
        highest = yield from _highest_there(view, object)
        tag, _ = yield from write_above(view, object, TOMBSTONE, highest, taken)
    finally:
        view.tags.end(object, taken)
    return tag


def _highest_there(view: View, object: ObjectName) -> Operation[int]:
    """Return the highest number of a present object.

    Raises :class:`ObjectNotFound` for an absent object.
    """
    try:
        answers = yield from query(
            view, lambda dap, object: dap.get_version(object, effort=BRIEF), object
        )
    except Undecodable:
        tags = yield from query(view, DataAccess.get_tag, object)
        return newest(tags).tag.number
    found = newest(answers)
    if found.value is TOMBSTONE:
        if found.tag != TAG_ZERO:
            yield from propagate(view, object, found.tag, TOMBSTONE)
        raise ObjectNotFound(object, view.domain)
    return max(answer.highest.number for answer in answers)


@phase(READ_OBJECT)
def stat(view: View, object: ObjectName) -> Operation[DataResult]:
    """Return the newest version without its value, if a quorum holds the version.

    Otherwise the version is read as by ``read``, which writes the version back, with the exceptions
    of ``read``.
    """
    answers = yield from query(view, DataAccess.get_version, object)
    found = newest(answers)
    if at_quorum(answers, found) is not None and found.value is not LOST:
        return found
    return (yield from read(view, object))


def settle_read(
    view: View, object: ObjectName, answers: list[DataResult]
) -> Operation[tuple[DataResult, ConfigurationId]]:
    """Bring the newest of ``answers`` to a quorum if needed (Alg. 1:40-47).

    Returns the version and the configuration of the quorum.
    """
    settled = _settled(view, answers) or (yield from _complete(view, object, answers))
    if settled[0].value is LOST:
        raise LeftBehind(object, settled[0].tag)
    return settled


def _settled(view: View, answers: list[DataResult]) -> tuple[DataResult, ConfigurationId] | None:
    """Return the newest version and its configuration, if it needs no write back (Alg. 1:40-46)."""
    found = newest(answers)
    there = at_quorum(answers, found)
    return (
        (found, there)
        if there is not None and (view.switches.fast_read or found.tag == TAG_ZERO)
        else None
    )


def _complete(
    view: View, object: ObjectName, answers: list[DataResult]
) -> Operation[tuple[DataResult, ConfigurationId]]:
    """Write the newest version back.

    A client with read rights only cannot. Such a client looks again and again until another client
    has written this version back, or has completed a later version. Servers may refuse a version
    written under an earlier limit of values; a version at a quorum needs no write back.
    """
    found = newest(answers)
    assert found.value is not WITHHELD, (
        "the last configuration of a traversal has no finalized successor"
    )
    try:
        configuration = yield from propagate(view, object, found.tag, found.value)
        return found, configuration.id
    except NotAuthorized as denied:
        return (yield from _await_quorum(view, object, denied))
    except ElementRefused:
        if (there := at_quorum(answers, found)) is None:
            raise
        return found, there


def _await_quorum(
    view: View, object: ObjectName, denied: NotAuthorized
) -> Operation[tuple[DataResult, ConfigurationId]]:
    """Return the newest version as soon as a quorum holds it.

    Raises ``denied`` again, with the reason, when the deadline comes first.
    """
    pause_s = LOOK_AGAIN_S_MIN
    try:
        while True:
            answers = yield from query(
                view, lambda dap, object: dap.get_data(object, confirming=True), object
            )
            found = newest(answers)
            there = at_quorum(answers, found)
            if there is not None:
                return found, there
            yield Pause(pause_s)
            pause_s = min(2 * pause_s, LOOK_AGAIN_S_MAX)
    except Unavailable as late:
        why = (
            f"the newest version of {shown(object)} is not at a quorum, and completing it takes "
            f"the role write: a writer has to ({denied.why})"
        )
        raise NotAuthorized(why, denied.story, untouched=True) from late


def write_above(
    view: View, object: ObjectName, value: Value, highest: int, taken: TakenNumbers
) -> Operation[tuple[Tag, Configuration]]:
    """Store ``value`` under a tag with a number above ``highest`` (Alg. 1:16).

    Returns the tag, and the last configuration with the version. ``taken``: the result of
    ``view.tags.begin`` before the caller's first phase. Raises :class:`NoTagLeft`, and
    :class:`WriteOnceRefusal` in a write-once domain.
    """
    if view.sequence.last_known.write_once:
        raise WriteOnceRefusal(view.domain, True)
    before = taken.number
    if max(highest, before) >= NUMBER_LAST:
        raise NoTagLeft(object, max(highest, before))
    tag = view.tags.take(taken, highest)
    try:
        configuration = yield from propagate(view, object, tag, value)
    except Uncertain as error:
        error.may_have_taken_effect = not error.untouched
        if error.untouched and taken.number == tag.number:
            taken.number = before
        raise
    if tag.number > taken.completed:
        taken.completed = tag.number
    return tag, configuration


@phase(PHASE_1)
def query(view: View, ask: Ask[Answer], object: ObjectName) -> Operation[list[Answer]]:
    """Ask every configuration from the last finalized to the last; return their answers.

    With the piggyback: Alg. 1:9-10 and Alg. 1:11-15, of a read Alg. 1:33-34 and Alg. 1:35-39.

    At least one answer is returned; the last configuration's answer is at the end.
    """
    if not view.switches.piggyback:
        return (yield from _query_plain(view, ask, object))
    sequence = view.sequence
    configuration: Configuration | None = sequence.last_finalized
    answers: list[Answer] = []
    if sequence.last_known is not configuration:
        answers, configuration = yield from _query_known(view, ask, object)
    while configuration is not None:
        try:
            answer = yield from ask(view.dap(configuration), object)
        except Superseded as superseded:
            configuration = detour(view, superseded)
            continue
        answers.append(answer)
        if answer.successor is None:
            break
        configuration = yield from find_next_config(view, configuration, answer.successor)
    return answers


def _query_known(
    view: View, ask: Ask[Answer], object: ObjectName
) -> Operation[tuple[list[Answer], Configuration | None]]:
    """Ask all known configurations at the same time.

    Returns the answers, and the configuration from which to continue step by step, or None.

    Alg. 1:11-15 and Alg. 1:35-39 ask a configuration after its predecessor has answered. That order
    matters only in a single case. Take a version completed in w before the query began; let f be
    the last finalized configuration known at that time and l the last known configuration:

    - w before f: f has the version, or a newer version, because f is finalized only after every
      object has moved there; and f is asked after that.
    - w from f to l: a quorum of w had the version when w was asked, and reports the version, unless
      w's data are withheld.
    - w after l: by rule R3 a quorum of l knew l's successor when w was first used, and reports the
      successor. From there on configurations are asked one after the other.

    If data are withheld, or w has no quorum any more, some later configuration is finalized and has
    the data of w. But the later configuration may have answered this query before the data arrived
    there, and before it was finalized. This answer does not count: the configuration is asked
    again, with every configuration after it. The answers from a configuration known to be finalized
    before, and from all later configurations, are complete by the first and the third case alone.

    The round therefore ends with the first such news: no outstanding answer counts. An outstanding
    answer may never come: the servers of a configuration that was only ever pending, and was
    replaced by a later configuration, may be gone.

    The simulator agrees: with the early answer taken for good, 4 of the first 700 runs of its
    scenario "moving" lose a completed write.
    """
    known = view.sequence.active
    found: dict[int, Answer] = {}

    def asked(configuration: Configuration) -> Operation[None]:
        answer = found[configuration.index] = yield from ask(view.dap(configuration), object)
        if withheld(answer):
            raise _Elsewhere(configuration)

    try:
        yield Together(map(asked, known), len(known))
    except Superseded as superseded:
        return [], detour(view, superseded)
    except _Elsewhere as elsewhere:
        left: Configuration = elsewhere.args[0]
        return [], (yield from find_next_config(view, left, found[left.index].successor))
    answers = [found[configuration.index] for configuration in known]
    for configuration, answer in zip(known, answers, strict=True):
        following = yield from find_next_config(view, configuration, answer.successor)
    return answers, following


class _Elsewhere(Exception):
    """Internal: a later configuration is finalized, and has the data of those before.

    The argument is the configuration whose answer said this.
    """


def withheld(answer: DataResult | TagResult) -> bool:
    """Return whether a later configuration is finalized.

    The data, or their tags, may be gone from the answering configuration in this case.
    """
    return answer.successor is not None and answer.successor.finalized


def _query_plain(view: View, ask: Ask[Answer], object: ObjectName) -> Operation[list[Answer]]:
    """Run read-config, and ask every configuration found (plain ARES: Alg. 1:8, Alg. 1:32).

    A configuration retired in between has no values to give: read-config runs again.
    """
    answers: list[Answer] = []
    yield from read_config(view)
    todo = view.sequence.active
    while todo:
        configuration = todo.pop(0)
        try:
            answer = yield from ask(view.dap(configuration), object)
        except Superseded as superseded:
            detour(view, superseded)
            yield from read_config(view)
            todo = view.sequence.active
            continue
        answers.append(answer)
        if withheld(answer):  # a configuration before a finalized one may be gone
            yield from read_config(view)
            todo = [later for later in view.sequence.active if later.index > configuration.index]
    return answers


@phase(PHASE_2)
def propagate(view: View, object: ObjectName, tag: Tag, value: Value) -> Operation[Configuration]:
    """Run put-data in the last configuration, and in every new configuration (Alg. 1:17-23).

    The second half of a read is the same (Alg. 1:40-46). Plain ARES runs read-config after each
    put-data (Alg. 1:21, Alg. 1:44). Returns the last of them. A failure leaves the servers
    untouched only if the first round fails.
    """
    reached, first = view.sequence.last_known, True
    configuration: Configuration | None = reached
    try:
        while configuration is not None:
            reached = configuration
            try:
                answer = yield from view.dap(configuration).put_data(object, tag, value)
            except Superseded as superseded:
                configuration, first = detour(view, superseded), False
                continue
            first = False
            if view.switches.piggyback:
                if answer.successor is None:
                    break
                configuration = yield from find_next_config(view, configuration, answer.successor)
            else:
                yield from read_config(view)
                last = view.sequence.last_known
                configuration = last if last.index > configuration.index else None
    except Uncertain as error:
        error.untouched = error.untouched and first
        raise
    return reached


def newest(answers: list[Answer]) -> Answer:
    """Return the highest version of answers not left to a successor (Alg. 1:13, Alg. 1:37).

    An answer left to a successor has tag t0, and loses ties to later answers.
    """
    if len(answers) == 1:
        return answers[0]
    return max(reversed(answers), key=lambda found: found.tag)


def at_quorum(answers: list[DataResult], found: DataResult) -> ConfigurationId | None:
    """Return the configuration where ``found``, the newest answer, is at a quorum to stay.

    To stay means: every operation that begins later finds the version, or a newer version. None: no
    such configuration is known. The published fast read accepts the last configuration, if its
    quorum names no successor. More configurations qualify:

    Let a quorum Q of a configuration c report that it held the version before it heard of c's
    successor (``DataResult.lasting``; a server that never heard of a successor reports this, too).
    An operation that begins later either asks c, meets Q, and finds the version there; or does not
    count on c, because some configuration after c is finalized. Consider the first configuration
    after c to be finalized: a mover had listed and read c before. Each of the mover's requests
    carries c's successor, and a server installs the successor before it answers (rule R1). Hence a
    server of Q, which had the version before it heard of a successor, had the version when it
    answered the mover. The mover met Q twice: it has listed the object, and has put the version, or
    a newer version, into its target. From there on every move takes the version along, as every
    version completed before the move began.

    Without the word "before" the argument fails: the version may have come to a server of Q after
    the mover had looked there. Random schedules agree: with servers that report ``lasting`` for
    every version, 1 in 20 of the schedules in tests/protocol/test_lasting.py reads an older version
    after a newer one.
    """
    if found.tag == TAG_ZERO:
        return answers[-1].configuration
    for answer in reversed(answers):
        if answer.lasting and answer.tag == found.tag:
            return answer.configuration
    return None
