"""Commands to Raft: equal proposals share a command, which is repeated more and more rarely.

The slower a disk is, the less work it may get.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ares.consensus.raft import member as raft_member
from ares.consensus.raft.member import Commands
from ares.model.errors import ConsensusUnavailable

from .clusters import PATIENCE_S, until

SUCCESS, MISSING_LEADER = 0, 2
"""Reasons of PySyncObj."""


class Machine:
    """A machine that notes commands; the test answers."""

    def __init__(self) -> None:
        self.commands = Commands()
        self.handed_in: list[tuple[str, Callable[[Any, int], None]]] = []

    def ask(self, key: str = "key", timeout_s: float = PATIENCE_S) -> asyncio.Task[Any]:
        return asyncio.create_task(
            self.commands.run(
                key, lambda callback: self.handed_in.append((key, callback)), timeout_s
            )
        )

    def answer(self, position: int, result: Any, reason: int = SUCCESS) -> None:
        self.handed_in[position][1](result, reason)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Keep a busy machine alone from causing repetitions."""
    monkeypatch.setattr(raft_member, "COMMAND_RESEND_S", 3600.0)
    return Machine()


async def given_up(machine: Machine) -> None:
    with pytest.raises(
        ConsensusUnavailable, match="no majority of the members confirmed it in time"
    ):
        await machine.ask(timeout_s=0.01)


async def test_callers_with_the_same_command_share_one(machine: Machine) -> None:
    asking = [machine.ask() for _ in range(100)]
    await until(lambda: bool(machine.handed_in))
    machine.answer(0, "decided")
    assert await asyncio.gather(*asking) == ["decided"] * 100
    assert len(machine.handed_in) == 1
    assert len(machine.commands) == 0


async def test_each_command_gets_its_own_answer(machine: Machine) -> None:
    asking = [machine.ask("a"), machine.ask("b")]
    await until(lambda: len(machine.handed_in) == 2)
    machine.answer(1, "of b")
    machine.answer(0, "of a")
    assert await asyncio.gather(*asking) == ["of a", "of b"]


async def test_a_command_outlasts_a_caller_without_patience(machine: Machine) -> None:
    """Without this, an answer slower than every caller's patience would reach no caller."""
    for _ in range(20):
        await given_up(machine)
    again = machine.ask()
    await asyncio.sleep(0)
    assert len(machine.handed_in) == 1
    machine.answer(0, "late")
    assert await again == "late"


async def test_it_is_handed_in_again_ever_more_rarely_and_any_copy_counts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_member, "COMMAND_RESEND_S", 0.02)
    asking, loop = machine.ask(), asyncio.get_running_loop()
    begin_s = loop.time()
    await until(lambda: len(machine.handed_in) == 4)
    assert loop.time() - begin_s >= 0.02 + 0.04 + 0.08
    machine.answer(1, "of the second copy")
    assert await asking == "of the second copy"
    machine.answer(3, "of the last")
    await asyncio.sleep(0)


async def test_a_failure_is_tried_again_once_for_all(machine: Machine) -> None:
    asking = [machine.ask() for _ in range(10)]
    await until(lambda: len(machine.handed_in) == 1)
    machine.answer(0, None, MISSING_LEADER)
    await until(lambda: len(machine.handed_in) == 2)
    machine.answer(1, "decided")
    assert await asyncio.gather(*asking) == ["decided"] * 10
    assert len(machine.handed_in) == 2


async def test_a_failure_to_hand_in_leaves_nothing(machine: Machine) -> None:
    def refuse(callback: Callable[[Any, int], None]) -> None:
        raise ConsensusUnavailable("member r0 is not running")

    with pytest.raises(ConsensusUnavailable, match="not running"):
        await machine.commands.run("key", refuse, PATIENCE_S)
    assert len(machine.commands) == 0


async def test_an_abandoned_command_is_forgotten_after_a_while(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_member, "KEPT_S", 0.02)
    await given_up(machine)
    await until(lambda: len(machine.commands) == 0)
    asking = machine.ask()
    await until(lambda: len(machine.handed_in) == 2)
    machine.answer(0, "of the first, which nobody knows any more")
    machine.answer(1, "decided")
    assert await asking == "decided"
