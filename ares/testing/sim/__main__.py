"""``python -P -m ares.testing.sim``: run seeds, and tell the story of a broken promise.

python -P -m ares.testing.sim --runs 20000 --jobs 2
python -P -m ares.testing.sim --seed 42 --scenario partition --story
python -P -m ares.testing.sim --seed 42 --scenario partition --shrink
python -P -m ares.testing.sim --minutes 2 --from-seed 123456
"""

import argparse
import multiprocessing
import sys
import time

from ares.testing.sim.run import (
    ALL_SCENARIOS,
    AnyPlan,
    Named,
    drawn,
    quiet,
    run_many,
    run_plan,
    shrink,
)

STORY_LINES = 120
FAILING_SEEDS_MAX = 20


def main() -> int:
    arguments = _arguments()
    quiet()
    scenarios = [arguments.scenario] if arguments.scenario else sorted(ALL_SCENARIOS)
    if arguments.seed is not None:
        return max(
            _one(drawn(arguments.seed, scenario), arguments.story, arguments.shrink)
            for scenario in scenarios
        )
    failed = _many(
        scenarios, arguments.from_seed, arguments.runs, arguments.minutes, arguments.jobs
    )
    for scenario, seed in failed[:3]:
        _one(drawn(seed, scenario), True, arguments.shrink)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -P -m ares.testing.sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--scenario", choices=sorted(ALL_SCENARIOS), help="default: all, in turn")
    parser.add_argument("--runs", type=int, default=1000, help="how many runs in all")
    parser.add_argument(
        "--minutes", type=float, help="as many runs as fit into this time, instead of --runs"
    )
    parser.add_argument("--from-seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--story", action="store_true", help="tell the whole story of --seed")
    parser.add_argument(
        "--shrink", action="store_true", help="make a failing plan smaller before telling its story"
    )
    arguments = parser.parse_args()
    if (
        arguments.runs < 1
        or arguments.jobs < 1
        or not (arguments.minutes is None or arguments.minutes > 0)
    ):
        parser.error("--runs, --jobs and --minutes are more than 0")
    return arguments


def _one(plan: AnyPlan, story: bool, smaller: bool) -> int:
    verdict = run_plan(plan)
    if verdict.violation is not None and smaller:
        plan = shrink(plan)
    verdict = run_plan(plan, keep_story=True)
    figures = (
        f"{verdict.operations} operations, {verdict.messages} messages; digest {verdict.digest}"
    )
    print(f"seed {plan.seed}, scenario {plan.scenario}: {verdict.violation or 'clean'} ({figures})")
    if verdict.violation is not None or story:
        print(plan.describe())
        lines = (
            verdict.story if story and verdict.violation is None else verdict.story[-STORY_LINES:]
        )
        print("\n".join(lines))
    return 0 if verdict.violation is None else 1


def _many(
    scenarios: list[str], first: int, runs: int, minutes: float | None, jobs: int
) -> list[Named]:
    begin = time.monotonic()
    until = begin + minutes * 60 if minutes is not None else None
    failed: list[Named] = []
    done = operations = messages = decisions = 0
    for name, verdict in run_many(scenarios, first, None if until else runs, until, jobs):
        done += 1
        operations += verdict.operations
        messages += verdict.messages
        decisions += verdict.reconfigurations
        if verdict.violation is not None:
            failed.append(name)
            print(
                f"\nVIOLATION with --scenario {name[0]} --seed {name[1]}: {verdict.violation}",
                flush=True,
            )
            if len(failed) >= FAILING_SEEDS_MAX:
                break
        if done % 100 == 0 and sys.stderr.isatty():
            rate = done / (time.monotonic() - begin)
            print(
                f"\r{done:,} runs, {operations:,} operations, {len(failed)} violations, "
                f"{rate:.0f} runs/s ",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(
        "\n"
        f"{done:,} runs of {', '.join(scenarios)} from seed {first}: {operations:,} operations, "
        f"{messages:,} messages, {decisions:,} decisions, {len(failed)} violations, "
        f"{done / (time.monotonic() - begin):.0f} runs/s"
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
