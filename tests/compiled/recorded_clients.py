"""Recorded events of clients' sessions, and a replay with the compiled core and without."""

from types import FunctionType

from ares.client import domain_directory, store
from ares.compiled import small_objects
from ares.engine.jobs import OperationLabel
from ares.engine.session import Session
from ares.model.identity import ObjectName
from ares.net.batching import batches
from ares.reconfig.view import View
from ares.registers.operations import read, write


class Began:
    """An operation before its first step, with the data to repeat the operation on other views."""

    def __init__(self, code, globals, arguments) -> None:
        assert not code.co_freevars, (
            f"{code.co_qualname} refers to variables around it, and cannot be made again"
        )
        self.code = code
        self._globals = globals
        self.arguments = arguments

    def again(self, views):
        """Make the operation again. ``views`` has the replacement of each view."""
        arguments = {
            name: views[value] if isinstance(value, View) else value
            for name, value in self.arguments.items()
        }
        return FunctionType(self.code, self._globals)(**arguments)


def posted(letters):
    """Return the outgoing batches for each server, as frames."""
    return {
        server: [[letter]] if isinstance(letter, bytes) else _frames(letter)
        for server, letter in letters.items()
    }


def _frames(messages):
    return [list(map(bytes, frames)) for _, frames in batches(messages)]


class RecordedSession(Session):
    """A session with a record of calls.

    ``course`` has the shell's calls, by method, without calls from within the session.
    """

    receiving = property(lambda self: lambda server: False, lambda self, value: None)
    """State of arriving data, which a recording leaves out."""

    def __init__(self, turn, fast_path=None) -> None:
        super().__init__(turn, fast_path=fast_path)
        self.first_turn = turn
        self.course = []
        self._within = False
        self._numbers = {}
        self._asked = []

    def _note(self, *event) -> None:
        if not self._within:
            self.course.append(event)

    def _run(self, method, *arguments):
        """Run a method, and treat calls during it as calls from within."""
        before, self._within = self._within, True
        try:
            return method(*arguments)
        finally:
            self._within = before

    def open(self, view, shell):
        """Open the small objects of a view, if any."""
        self.course.append(("open", view, view.client, view.sequence.last_known, view.switches))
        objects = small_objects(self, view, shell)
        return None if objects is None else _RecordedObjects(objects, self, view)

    def begin(self, handle, operation: Began, *asked, idle=False, key=None) -> None:
        """Begin an operation, in the core or in Python; ``handle`` is for cancelling.

        ``asked``: label, now, timeout_s.
        """
        self._numbers[handle] = len(self._numbers)
        self.course.append(("begin", operation, *asked, idle, key))

    def start(self, operation, label, now, timeout_s, done, **options):
        began = Began(
            operation.gi_code, operation.gi_frame.f_globals, dict(operation.gi_frame.f_locals)
        )
        job = super().start(operation, label, now, timeout_s, done, **options)
        about = {name: options[name] for name in ("idle", "key") if name in options}
        self.begin(job, began, label, now, timeout_s, **about)
        return job

    def cancel(self, job) -> None:
        # the core's jobs have no number, and are cancelled from within
        self._note("cancel", self._numbers.get(job))
        self._run(super().cancel, job)

    def cancel_small(self, done) -> None:
        self._note("cancel", self._numbers[done])
        self._run(super().cancel_small, done)

    def take_letters(self):
        letters = super().take_letters()
        self._asked += [task for _, task in self.asks]
        self._note("post", posted(letters))
        return letters

    def receive_frames(self, server, frames, now) -> None:
        self._note("receive_frames", server, list(map(bytes, frames)), now)
        self._run(super().receive_frames, server, frames, now)

    def receive(self, server, messages, now) -> None:
        self._note("receive", server, messages, now)
        self._run(super().receive, server, messages, now)

    def resume(self, task, value, now, error=None) -> None:
        self._note("resume", self._asked.index(task), value, now, error)
        self._run(super().resume, task, value, now, error)

    def hinted(self, domain, newer, now) -> None:
        self._note("hinted", domain, newer, now)
        self._run(super().hinted, domain, newer, now)

    def redirect(self, domain, newer, now) -> None:
        self._note("redirect", domain, newer, now)
        self._run(super().redirect, domain, newer, now)

    def wake(self, now) -> None:
        self._note("wake", now)
        self._run(super().wake, now)

    def tick(self, now) -> None:
        self._note("tick", now)
        self._run(super().tick, now)

    def close(self, error) -> None:
        self._note("close", error)
        self._run(super().close, error)


class _RecordedObjects:
    def __init__(self, objects, session: RecordedSession, view) -> None:
        self._objects = objects
        self._session = session
        self._view = view

    def read(self, key, done, now, timeout_s):
        future = self._objects.read(key, done, now, timeout_s)
        if future is not None:
            self._session.begin(
                future, self._began(read, key), OperationLabel("read", key), now, timeout_s
            )
        return future

    def write(self, key, value, done, now, timeout_s):
        future = self._objects.write(key, value, done, now, timeout_s)
        if future is not None:
            began = self._began(write, key, value=value)
            self._session.begin(
                future,
                began,
                OperationLabel("write", key),
                now,
                timeout_s,
                key=(self._view.domain, ObjectName(key)),
            )
        return future

    def _began(self, function, key, **more) -> Began:
        return Began(
            function.__code__, function.__globals__, {"view": self._view, "object": key, **more}
        )


def record_sessions(monkeypatch):
    """Record the sessions of clients made from now on."""
    sessions = []

    def made(turn, fast_path):
        sessions.append(RecordedSession(turn, fast_path))
        return sessions[-1]

    monkeypatch.setattr(domain_directory, "Session", made)
    monkeypatch.setattr(store, "small_objects", RecordedSession.open)
    return sessions


class Twin:
    """A session for the replay.

    ``ends`` has operations with their outcomes; ``sent`` has the last posted letters; ``quick``
    counts letters written by the core alone; ``small`` counts operations begun by the core.
    """

    def __init__(self, recorded: RecordedSession, fast_path=None) -> None:
        self.session = Session(recorded.first_turn, fast_path=fast_path)
        self.ends, self.sent, self.quick, self.small = [], {}, 0, 0
        self._views, self._objects = {}, {}
        self._handles, self._asked = [], []

    def do(self, event, *arguments) -> None:
        (getattr(self, event, None) or getattr(self.session, event))(*arguments)

    def open(self, view, client, first, switches) -> None:
        self._views[view] = View(client, first, switches, self.session.readiness)
        self._objects[view] = small_objects(self.session, self._views[view])

    def begin(self, operation: Began, label, now, timeout_s, idle, key) -> None:
        number = len(self._handles)

        def done(result, error) -> None:
            self.ends.append((number, result, repr(error)))

        if self._began_small(operation, done, now, timeout_s):
            self.small += 1
            self._handles.append((self.session.cancel_small, done))
        else:
            job = self.session.start(
                operation.again(self._views), label, now, timeout_s, done, idle=idle, key=key
            )
            self._handles.append((self.session.cancel, job))

    def _began_small(self, operation: Began, done, now, timeout_s) -> bool:
        objects = self._objects.get(operation.arguments.get("view"))
        if objects is None or operation.code not in (read.__code__, write.__code__):
            return False
        name = operation.arguments["object"]
        if operation.code is read.__code__:
            return objects.read(name, done, now, timeout_s) is not None
        return objects.write(name, operation.arguments["value"], done, now, timeout_s) is not None

    def cancel(self, number) -> None:
        cancel, handle = self._handles[number]
        cancel(handle)

    def post(self, recorded) -> None:
        """Post as the shell does."""
        letters = self.session.take_letters()
        self.quick += sum(isinstance(letter, bytes) for letter in letters.values())
        self.sent = posted(letters)
        assert self.sent == recorded, "it is not what was recorded"
        assert list(self.sent) == list(recorded)
        self._asked += [task for _, task in self.session.asks]
        self.session.asks, self.session.hints, self.session.contacts = [], [], []

    def resume(self, number, value, now, error) -> None:
        self.session.resume(self._asked[number], value, now, error)

    @property
    def knows(self):
        """Return all state that later operations depend on."""
        session, readiness = self.session, self.session.readiness
        taken = [
            {
                name: (each.number, each.completed, each.writers)
                for name, each in view.tags._taken.items()
            }
            for view in self._views.values()
        ]
        servers = readiness.sent, readiness._heard, readiness.suspects, readiness.turn
        orders = session.contacts, session.hints, [what for what, _ in session.asks]
        sequences = [view.sequence.active for view in self._views.values()]
        return (
            session.last_call,
            session.usual_round_s,
            session.busy,
            servers,
            orders,
            sequences,
            taken,
        )


def replay(recorded: RecordedSession, compiled: Twin, pure: Twin) -> None:
    """Replay to both sessions, and compare them after each event.

    Both must have posted the recorded letters, ended the same operations in the same way, and know
    the same.
    """
    for event in recorded.course:
        for twin in (compiled, pure):
            twin.do(*event)
        assert (compiled.ends, compiled.knows) == (pure.ends, pure.knows)
    ended, given_up = (
        {number for number, _, _ in pure.ends},
        {event[1] for event in recorded.course if event[0] == "cancel"},
    )
    assert ended | given_up == set(range(len(pure._handles)))
