"""Make a failing plan smaller: leave out faults, clients and steps as long as it still fails in the same way."""

from collections.abc import Callable, Iterator

import msgspec

from ares.testing.sim.plan import Plan
from ares.testing.sim.run import run_plan

ATTEMPTS_MAX = 2000


def shrink(plan: Plan, fails: Callable[[Plan], bool] | None = None) -> Plan:
    """The smallest plan found by leaving things out one at a time; ``fails`` defaults to breaking any promise."""
    fails = fails or (lambda candidate: run_plan(candidate).violation is not None)
    attempts = 0
    smaller = True
    while smaller and attempts < ATTEMPTS_MAX:
        smaller = False
        for candidate in _smaller(plan):
            attempts += 1
            if fails(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Every plan with one thing less; large things first."""
    replace = msgspec.structs.replace
    for index in range(len(plan.clients)):
        yield replace(plan, clients=plan.clients[:index] + plan.clients[index + 1 :])
    for index in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:index] + plan.faults[index + 1 :])
    if plan.chances.loss or plan.chances.double or plan.chances.bad_links:
        yield replace(plan, chances=replace(plan.chances, loss=0.0, double=0.0, bad_links=0.0))
    for index, client in enumerate(plan.clients):
        if client.dies_at is not None:
            yield _with(plan, index, replace(client, dies_at=None))
        for step in range(len(client.steps)):
            yield _with(plan, index, replace(client, steps=client.steps[:step] + client.steps[step + 1 :]))


def _with(plan: Plan, index: int, client: object) -> Plan:
    clients = (*plan.clients[:index], client, *plan.clients[index + 1 :])
    return msgspec.structs.replace(plan, clients=clients)
