"""The papers' scripts, execute_..._exp.py, on top of `python -m experiments run`.

The scripts have the flags of the papers' scripts (NGIatlantic final report, section 4.4):

    .venv/bin/python experiments/execute_file_size_exp.py -fast_op True -protocol ARES
        -dap_protocol EC -parity 5 -testbed local -load_policy fixedsize
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ares.model.errors import BadInput
from experiments.__main__ import main
from experiments.rounds.playbook_runs import PLAYBOOKS, program
from experiments.rounds.round_testbeds import MADE, RESERVED_BEDS
from experiments.rounds.scenario import OF_ARES, SCALES, scenarios

TESTBEDS = (*MADE, *RESERVED_BEDS)
INSTALLED = ("local", *RESERVED_BEDS)
INSTALL_PLAYBOOK = PLAYBOOKS / "install.yml"
SCRIPTS = {"file_size": "object_size", "k": "fragmentation_k"}
"""Scenarios with another name than their script, by the script's name."""

PAPER_FAMILIES = ("ARES", "ABD", "Cassandra", "Redis", "RedisW", "etcd")


def parser(scenario: str) -> argparse.ArgumentParser:
    """Return a parser of the flags. As in the papers, the flags begin with a single hyphen."""
    made = argparse.ArgumentParser(
        description=f"Rounds of the scenario {scenario}.",
        epilog="All other options: python -m experiments run --help",
    )
    words = "a read whose quorum agrees ends after one round (default: as the scenario says)"
    made.add_argument("-fast_op", choices=("True", "False"), help=f"ares: whether {words}")
    words = "of the experiment: results go to results/NAME (default: results/experiments)"
    made.add_argument("-exp_name", metavar="NAME", help=words)
    words = "the store (default: all that the scenario has)"
    made.add_argument("-protocol", choices=PAPER_FAMILIES, help=words)
    words = "only with ARES: replication or erasure code (default: both)"
    made.add_argument("-dap_protocol", choices=("ABD", "EC"), help=words)
    words = "only with ARES and EC: fragments that may be lost, n - k"
    made.add_argument("-parity", type=int, metavar="M", help=words)
    words = "where (default: processes)"
    made.add_argument("-testbed", choices=TESTBEDS, default="processes", help=words)
    words = "of fed4fire, emulab, aws: made by python -m experiments inventory"
    made.add_argument("-inventory", metavar="FILE", help=words)
    words = "whether written values grow up to the object's size, or have this size at once"
    made.add_argument("-load_policy", choices=("growing", "fixedsize"), help=words)
    words = "quick: minutes on two cores; paper: as in the papers (default: quick)"
    made.add_argument("-scale", choices=SCALES, default="quick", help=words)
    made.add_argument("-resume", action="store_true", help="leave out the rounds that are done")
    return made


def words(scenario: str, given: Sequence[str] | None = None) -> list[str]:
    """Return the command of `python -m experiments` that the flags stand for. Raises BadInput."""
    flags = parser(scenario).parse_args(given)
    if flags.dap_protocol and flags.protocol != "ARES":
        raise BadInput("-dap_protocol is for -protocol ARES; nothing was begun")
    if flags.parity is not None and flags.dap_protocol != "EC":
        raise BadInput("-parity is for -protocol ARES -dap_protocol EC; nothing was begun")
    made = ["run", scenario, "--testbed", flags.testbed, "--scale", flags.scale]
    if flags.protocol:
        dap = flags.dap_protocol
        made += ["--protocol", _protocols(scenario, dap) if dap else flags.protocol]
    if flags.exp_name:
        if Path(flags.exp_name).name != flags.exp_name:
            raise BadInput("-exp_name is the name of a directory below results; nothing was begun")
        made += ["--results", str(Path("results") / flags.exp_name)]
    own = {"fast_read": (flags.fast_op or "").lower(), "parity": flags.parity}
    for name, value in (own | {"load_policy": flags.load_policy}).items():
        made += ["--set", f"{name}={value}"] if value not in (None, "") else []
    made += ["--inventory", flags.inventory] if flags.inventory else []
    return made + ["--resume"] * flags.resume


def _protocols(scenario: str, dap: str) -> str:
    """Return the scenario's protocols that are ARES with these primitives, with commas."""
    ours = [name for name in scenarios()[scenario].protocols if name in OF_ARES[1:]]
    chosen = [name for name in ours if f"_{dap}" in name]
    if not chosen:
        raise BadInput(f"the scenario {scenario} has no ARES with {dap}; nothing was begun")
    return ",".join(chosen)


def installation(given: Sequence[str] | None = None) -> list[str]:
    """Return the command that install-requirements.py stands for."""
    made = argparse.ArgumentParser(
        description="Install the programs that the hosts of a testbed need before the rounds "
        "(playbooks/install.yml)."
    )
    made.add_argument("-testbed", choices=INSTALLED, required=True, help="the kind of the hosts")
    words = "whether packages come by way of a host of [proxy] (default: false)"
    made.add_argument("-proxy", choices=("true", "false"), default="false", help=words)
    file, words = Path("inventory.yml"), "the hosts (default: inventory.yml)"
    made.add_argument("-inventory", type=Path, default=file, metavar="FILE", help=words)
    flags = made.parse_args(given)
    if not flags.inventory.is_file():
        raise BadInput(
            f"there is no {flags.inventory}: `python -m experiments inventory` or `local up` "
            "makes an inventory; nothing was installed"
        )
    words = [program("ansible-playbook"), "-i", str(flags.inventory), str(INSTALL_PLAYBOOK)]
    return [*words, "-e", f"testbed={flags.testbed}", "-e", f"proxy={flags.proxy}"]


def install() -> int:
    """Do the work of install-requirements.py, and return the exit status."""
    return _told(lambda: subprocess.run(installation()).returncode)


def _told(work: Callable[[], int]) -> int:
    try:
        return work()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def scenario_of(script: str) -> str:
    """Return the scenario of a script, execute_..._exp."""
    name = script.removeprefix("execute_").removesuffix("_exp")
    return SCRIPTS.get(name, name)


def execute(script: str) -> int:
    """Do the work of a script, and return the exit status."""
    return _told(lambda: main(words(scenario_of(script))))
