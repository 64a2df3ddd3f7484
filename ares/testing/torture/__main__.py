"""Client processes of a torture run: ``python -P -m ares.testing.torture ROLE JSON``.

People use `ares-cli torture`.
"""

import sys

import msgspec

from ares.platform.loop import run
from ares.testing.torture.clients import TrafficPlan, run_clients, run_final_reader
from ares.testing.torture.log_clients import make_log, run_final_log_reader, run_log_clients
from ares.testing.torture.reconfigurer import ReconfigurerPlan, run_reconfigurer
from ares.testing.torture.slow_disk import serve_slowly


def main(role: str, plan: str) -> None:
    """Run ``role`` until the work is done, stdin ends, or SIGTERM."""
    match role:
        case "clients":
            run(run_clients(msgspec.json.decode(plan, type=TrafficPlan)))
        case "final":
            run(run_final_reader(msgspec.json.decode(plan, type=TrafficPlan)))
        case "log-clients":
            run(run_log_clients(msgspec.json.decode(plan, type=TrafficPlan)))
        case "make-log":
            run(make_log(msgspec.json.decode(plan, type=TrafficPlan)))
        case "final-log":
            run(run_final_log_reader(msgspec.json.decode(plan, type=TrafficPlan)))
        case "slow-disk":
            serve_slowly(plan)
        case "reconfigurer":
            run(run_reconfigurer(msgspec.json.decode(plan, type=ReconfigurerPlan)))
        case _:
            sys.exit(f"no such role: {role}")


if __name__ == "__main__":
    main(*sys.argv[1:])
