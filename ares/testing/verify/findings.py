"""What a check of a history found: violations, with the operations that contradict each other, and what could not be decided."""

from msgspec import Struct

from ares.testing.verify.history import Event


class Violation(Struct, frozen=True):
    """Operations on one key that cannot all have happened as recorded; ``events`` are few, by time of invocation."""

    key: str
    why: str
    events: tuple[Event, ...]

    def describe(self) -> str:
        """The contradiction and its operations, a line each."""
        return "\n".join([f"key {self.key!r}: {self.why}", *(f"  {event.describe()}" for event in self.events)])


class Undecided(Struct, frozen=True):
    """A key that was neither found right nor wrong."""

    key: str
    why: str

    def describe(self) -> str:
        """One line for a person."""
        return f"key {self.key!r}: undecided: {self.why}"


class Report(Struct, frozen=True):
    """The outcome of a check; ``operations`` counts all events given, ``keys`` the different keys among them."""

    operations: int
    keys: int
    violations: tuple[Violation, ...] = ()
    undecided: tuple[Undecided, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every key was decided, and found right."""
        return not self.violations and not self.undecided
