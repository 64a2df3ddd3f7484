"""A client's knowledge of a domain, which only grows at its end and shrinks at its beginning.

See ares/reconfig/view.py.
"""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import ConfigurationRefused
from ares.model.identity import DEFAULT_DOMAIN
from ares.reconfig.view import ConfigurationSequence

CONTENTS = [Configuration.abd([f"s{first + number}" for number in range(3)]) for first in range(4)]
DECIDED = {index: CONTENTS[index % 4].at(DEFAULT_DOMAIN, index) for index in range(10)}


class SequenceMachine(RuleBasedStateMachine):
    @initialize(first=st.integers(0, 3))
    def begin(self, first):
        self.sequence = ConfigurationSequence(DECIDED[first])
        self.finalized = self.known = first

    def successor(self, draw_index, pending):
        """Add a successor as the protocol does.

        A pending successor comes right after the entry of its discovery.
        """
        found_in = self.sequence.active[draw_index % len(self.sequence.active)]
        index = found_in.index + 1 if pending else min(found_in.index + 1 + draw_index % 3, 9)
        return found_in, index

    @precondition(lambda self: self.sequence.last_known.index < 9)
    @rule(where=st.integers(0, 9), pending=st.booleans())
    def find(self, where, pending):
        found_in, index = self.successor(where, pending)
        successor = Successor(DECIDED[index], Status.PENDING if pending else Status.FINALIZED)
        self.sequence.add(found_in, successor)
        assert (
            self.sequence.knows(found_in, successor) or index <= self.sequence.last_finalized.index
        )
        assert not self.sequence.knows(
            self.sequence.last_known, Successor(DECIDED[9], Status.FINALIZED)
        )

    @rule(index=st.integers(0, 9))
    def hear_of_a_finalized_one(self, index):
        self.sequence.adopt(Successor(DECIDED[index], Status.FINALIZED))

    @rule()
    def collect(self):
        for configuration in self.sequence.retired:
            self.sequence.forget(configuration)
        assert self.sequence.retired == []

    @rule()
    def hear_of_a_second_decision(self):
        last = self.sequence.last_known
        other = Successor(
            CONTENTS[(last.index + 1) % 4].at(DEFAULT_DOMAIN, last.index), Status.FINALIZED
        )
        active = self.sequence.active
        try:
            self.sequence.adopt(other)
        except ConfigurationRefused:
            assert self.sequence.active == active
        else:
            raise AssertionError("two configurations for one index")

    @invariant()
    def grows_forward(self):
        sequence = self.sequence
        assert sequence.last_finalized.index >= self.finalized
        assert sequence.last_known.index >= self.known
        assert sequence.last_known.index >= sequence.last_finalized.index
        self.finalized, self.known = sequence.last_finalized.index, sequence.last_known.index

    @invariant()
    def holds_only_what_was_decided(self):
        sequence = self.sequence
        entries = [*sequence.retired, *sequence.active]
        assert entries == [DECIDED[configuration.index] for configuration in entries]
        assert [entry.index for entry in entries] == sorted({entry.index for entry in entries})
        assert sequence.active[0] == sequence.last_finalized
        assert sequence.active[-1] == sequence.last_known
        for before, after in itertools.pairwise(entries):
            assert sequence.before(after) == before

    @invariant()
    def names_a_pending_successor_of_the_last_finalized_alone(self):
        sequence, pending = self.sequence, self.sequence.pending
        if pending is not None:
            assert sequence.active == [sequence.last_finalized, pending.configuration]
            assert pending.status is Status.PENDING
            assert sequence.knows(sequence.last_finalized, pending)


TestSequence = SequenceMachine.TestCase
TestSequence.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)
