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

ARES II (section 5.1) lets a client learn of a new configuration from the replies to get-tag,
get-data and put-data, without a round for this purpose. In the published form a client asks a
server for the successor only at the moment when the server stores the value, which is too early: a
write can complete at a quorum in which no server names a successor *yet*, while the reconfigurer
has already finished its search without this write.

Rule R1 closes the hole: every request that moves data out of a configuration carries the
configuration's successor, and a server installs the successor before the reply
(`ares/reconfig/mover.py`). The run below is of this project's code without R1 (`without_r1` in
`tests/simulation/controls.py`). The rest is as published, including a separate put-config round.
With the rule, the same plan is clean.

The simulator found the run with scenario `{scenario}`, seed {seed}, and reduced it to {clients}
clients. `python -m tests.simulation.counterexample` writes this page anew.

**The violation:** {violation}

`w` are writers, `g` is the reconfigurer, `z` reads at the end; `s` are the servers. c0 is the
initial configuration, c1 the new configuration. `next=c1:P` means that a server names c1 as pending
successor, `:F` as finalized. LOST messages never arrive.

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
