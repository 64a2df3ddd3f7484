"""A writer of docs/piggyback-counterexample.md from a run of the simulator.

In the run the published piggyback loses a completed write.

    python -m tests.simulation.counterexample > docs/piggyback-counterexample.md
"""

import sys

from ares.testing.sim.plan import SimPlan, draw
from ares.testing.sim.run import SimVerdict, run_plan, shrink
from tests.simulation.controls import CONTROLS, hunt

NAME = "published piggyback (no R1)"
FIRST_SEED = 4300
RUNS_MAX = 20_000

TEXT = """# The published piggyback loses a completed write

ARES II (section 5.1) lets a client learn of a new configuration from the replies to get-tag, get-data and put-data, instead of from a round of
its own. As published, a server is looked at only at the moment it stores the value, and that is not enough: a write can complete at a quorum
of which no server names a successor *yet*, while the reconfigurer has already looked past it.

Rule R1 closes the hole: every request that moves data out of a configuration carries that configuration's successor, and a server installs it
before it answers (`ares/reconfig/mover.py`). The run below is of this project's code with that one rule taken out (`without_r1` in
`tests/simulation/controls.py`); everything else, the put-config round of its own included, is as published. With the rule, the same plan is
clean.

Found by the simulator with scenario `{scenario}`, seed {seed}, made smaller to {clients} clients. `python -m tests.simulation.counterexample`
writes this page anew.

**What was broken:** {violation}

`w` are writers, `g` is the reconfigurer, `z` reads at the end; `s` are the servers. c0 is the initial configuration, c1 the new one; `next=c1:P`
says that a server names c1 as pending successor, `:F` as finalized. LOST messages never arrive.

```
{story}
```
"""


def main() -> None:
    broken, scenario = CONTROLS[NAME]
    found = next(hunt(NAME, FIRST_SEED, RUNS_MAX), None)
    if found is None:
        sys.exit(f"{RUNS_MAX} runs from seed {FIRST_SEED} did not show it")
    with broken():
        plan = shrink(draw(found[0], scenario))
        verdict = run_plan(plan, keep_story=True)
    repaired = run_plan(plan)
    if verdict.violation is None or repaired.violation is not None:
        sys.exit("the plan does not separate the published form from the corrected one")
    sys.stdout.write(page(plan, verdict))


def page(plan: SimPlan, verdict: SimVerdict) -> str:
    """Return the document."""
    story = "\n".join(
        line[:200]
        for line in verdict.story
        if "VIOLATION" not in line and not line.startswith(" " * 14)
    )
    violation = str(verdict.violation).replace("\n", " ")
    return TEXT.format(
        scenario=plan.scenario,
        seed=plan.seed,
        clients=len(plan.clients),
        violation=violation,
        story=story,
    )


if __name__ == "__main__":
    main()
