"""The processes of clients in a torture run: ``python -P -m ares.testing.torture ROLE JSON``. For people there is `ares-cli torture`."""

import sys

import msgspec

from ares.machine.loop import run
from ares.testing.torture.clients import TrafficPlan, run_clients, run_final_reader
from ares.testing.torture.reconfigurer import ReconfigurerPlan, run_reconfigurer


def main(role: str, plan: str) -> None:
    """Be what ``role`` says until the work is done, stdin ends, or SIGTERM."""
    match role:
        case "clients":
            run(run_clients(msgspec.json.decode(plan, type=TrafficPlan)))
        case "final":
            run(run_final_reader(msgspec.json.decode(plan, type=TrafficPlan)))
        case "reconfigurer":
            run(run_reconfigurer(msgspec.json.decode(plan, type=ReconfigurerPlan)))
        case _:
            sys.exit(f"no such role: {role}")


if __name__ == "__main__":
    main(*sys.argv[1:])
