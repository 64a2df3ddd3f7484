"""An exact search for a linearization of values written more than once, with a budget.

Deletes are the usual case. The problem is NP-complete, hence the budget. The search builds the
linearization from the beginning (Wing and Gong; Lowe, "Testing for linearizability"): an *item* may
come next if no other item left must precede it. Items are the clusters of values written once, each
as a whole (register.py: invoked at ``begun``, responding at ``ended``), and single reads and writes
of the repeated values. These rules leave few choices; each keeps a linearization if any exists:

- All values without a remaining read are equally good: they count as a single value,
``OTHER_VALUE``, and
  every cluster writes ``OTHER_VALUE``.
- A read of the present value goes next, and a write of ``OTHER_VALUE`` if ``OTHER_VALUE`` is the
present value:
  neither restricts later operations.
- Of several possible next writes of a value, the write with the earliest response is taken: two
  such writes can be exchanged.
- A write of unknown outcome is left out unless a read of the value follows at once. Of several with
  the same value, the first invoked is used.

Hence a choice is only which value to write next, whatever the present value is. A state is the set
of items left (identified by the possible next items and the item with the earliest response: all
later items are left, all earlier items done), and the number of used writes of unknown outcome:
fewer is better. States met before are not tried again.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from ares.testing.verify.register import RegisterHistory, Zone, is_write, response

OTHER_VALUE = 0
"""The number of all values without a remaining read; repeated values count from 1."""


class _Item(NamedTuple):
    begun: float
    ended: float
    writes: bool
    value: int


class _Choice(NamedTuple):
    """The next step: an item; for a negative ``item``, a write of unknown outcome of ``value``."""

    ended: float
    item: int
    value: int


class _Order:
    """Items in an order, without taken items; these are put back in reverse. ``end`` is no item."""

    def __init__(self, order: Sequence[int]) -> None:
        self.end = len(order)
        self.after = [0] * (self.end + 1)
        self._before = [0] * (self.end + 1)
        for one, other in zip([self.end, *order], [*order, self.end], strict=True):
            self.after[one], self._before[other] = other, one

    def take(self, item: int) -> None:
        before, after = self._before[item], self.after[item]
        self.after[before], self._before[after] = after, before

    def put_back(self, item: int) -> None:
        self.after[self._before[item]] = self._before[self.after[item]] = item


class Search:
    """The search for a linearization of a key.

    ``reached``: the latest time seen by the search; operations invoked later played no part.
    """

    def __init__(self, register: RegisterHistory, zones: Sequence[Zone]) -> None:
        numbers = {value: number for number, value in enumerate(register.repeated, 1)}
        items = [_Item(zone.begun, zone.ended, True, OTHER_VALUE) for zone in zones]
        self._unknown: list[list[float]] = [[] for _ in range(len(numbers) + 1)]
        for value, number in numbers.items():
            for event in [*register.writes[value], *register.reads[value]]:
                if event.outcome == "unknown":
                    self._unknown[number].append(event.invoked)
                else:
                    items.append(_Item(event.invoked, response(event), is_write(event), number))
            self._unknown[number].sort()
        items.sort()
        self._items = items
        self._begun = [*(item.begun for item in items), inf]
        self._ended = [*(item.ended for item in items), inf]
        self._by_begun = _Order(range(len(items)))
        self._by_ended = _Order(sorted(range(len(items)), key=self._ended.__getitem__))
        self._reads_left = [0, *(len(register.reads[value]) for value in numbers)]
        self._present = numbers.get(None, OTHER_VALUE)
        # used writes of unknown outcome of each value; shared by states
        self._used = (0,) * len(self._unknown)
        self._trail: list[
            int | tuple[int, ...]
        ] = []  # steps done: items taken, and ``_used`` before each change
        self._seen: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self.states = 0
        self.reached = -inf

    def run(self, states_max: int) -> bool | None:
        """Return whether a linearization exists; ``None`` after ``states_max`` undecided states."""
        choices: list[tuple[int, Iterator[_Choice]]] = []
        while (candidates := self._settle()) or self._left():
            if self._is_new(candidates):
                self.states += 1
                if self.states > states_max:
                    return None
                choices.append((len(self._trail), iter(self._choices(candidates))))
            while choices:
                length, rest = choices[-1]
                self._undo(length)
                if (choice := next(rest, None)) is not None:
                    self._do(choice)
                    break
                choices.pop()
            else:
                return False
        return True

    def _left(self) -> bool:
        return self._by_begun.after[-1] != self._by_begun.end

    def _candidates(self) -> list[int]:
        """Return the possible next items.

        All of them except a single item began before the earliest response of the items left.
        """
        begun, ended, after = self._begun, self._ended, self._by_begun.after
        first = self._by_ended.after[-1]
        second = self._by_ended.after[first]
        earliest = ended[first]
        found = []
        item = after[-1]
        while begun[item] <= earliest < inf:
            found.append(item)
            item = after[item]
        if earliest < begun[first] <= ended[second]:
            found.append(first)
        return found

    def _settle(self) -> list[int]:
        """Take the items without a choice, and return the possible next items."""
        while True:
            candidates = self._candidates()
            if not self._reads_left[self._present]:
                self._present = OTHER_VALUE
            needless = [item for item in candidates if self._needs_no_choice(item)]
            if not needless:
                return candidates
            for item in needless:
                self._take(item)

    def _needs_no_choice(self, item: int) -> bool:
        _, _, writes, value = self._items[item]
        if writes:
            return self._present == OTHER_VALUE == self._target(value)
        return value == self._present

    def _target(self, value: int) -> int:
        return value if self._reads_left[value] else OTHER_VALUE

    def _choices(self, candidates: Sequence[int]) -> list[_Choice]:
        """Return for each value the write to try, the most urgent first."""
        best: dict[int, _Choice] = {}
        readable = set()
        for item in candidates:
            value = self._items[item].value
            if not self._items[item].writes:
                readable.add(value)
                continue
            target = self._target(value)
            if target not in best or self._ended[item] < best[target].ended:
                best[target] = _Choice(self._ended[item], item, target)
        earliest = self._ended[self._by_ended.after[-1]]
        unknown = [
            _Choice(inf, -1, value) for value in sorted(readable) if self._unused(value, earliest)
        ]
        return sorted(best.values()) + unknown

    def _unused(self, value: int, until: float) -> bool:
        """Return whether an unused write of unknown outcome of the value began by ``until``."""
        invoked, used = self._unknown[value], self._used[value]
        return used < len(invoked) and invoked[used] <= until

    def _is_new(self, candidates: Sequence[int]) -> bool:
        """Return whether the state is new, and note the state as met.

        A state is not new if a met state has the same items and no more used writes of unknown
        outcome.
        """
        first = self._by_ended.after[-1]
        second = self._by_ended.after[first]
        self.reached = max(
            self.reached,
            self._ended[first],
            self._begun[first],
            self._begun[second] if second != self._by_ended.end else -inf,
        )
        met = self._seen.setdefault((first, *candidates), [])
        if any(used is self._used or all(map(int.__le__, used, self._used)) for used in met):
            return False
        met.append(self._used)
        return True

    def _do(self, choice: _Choice) -> None:
        if choice.item >= 0:
            self._take(choice.item)
        else:
            self._trail.append(self._used)
            self._used = tuple(
                count + (value == choice.value) for value, count in enumerate(self._used)
            )
        self._present = choice.value

    def _take(self, item: int) -> None:
        self._by_begun.take(item)
        self._by_ended.take(item)
        self._reads_left[self._items[item].value] -= not self._items[item].writes
        self._trail.append(item)

    def _undo(self, length: int) -> None:
        while len(self._trail) > length:
            done = self._trail.pop()
            if isinstance(done, tuple):
                self._used = done
            else:
                self._by_begun.put_back(done)
                self._by_ended.put_back(done)
                self._reads_left[self._items[done].value] += not self._items[done].writes
