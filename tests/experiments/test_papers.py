"""The papers' scripts and their flags, and other values of parameters (`run --set`)."""

import subprocess
from pathlib import Path

import pytest

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments import papers
from experiments.rounds.scenario import scenarios

DIRECTORY = Path(papers.__file__).parent
SCRIPTS = sorted(DIRECTORY.glob("execute_*_exp.py"))


def test_every_scenario_has_a_script():
    named = [papers.scenario_of(script.stem) for script in SCRIPTS]
    assert {script.readlink().name for script in SCRIPTS} == {"papers_script.py"}
    assert sorted(named) == sorted(scenarios())


def test_a_script_works_from_anywhere_and_tells_what_is_wrong_with_its_flags(tmp_path):
    command = python(
        DIRECTORY / "execute_file_size_exp.py", "-protocol", "etcd", "-dap_protocol", "EC"
    )
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (
        1,
        "error: -dap_protocol is for -protocol ARES; nothing was begun\n",
    )


def test_flags_are_those_of_the_papers():
    given = (
        "-fast_op False -exp_name sizes -protocol ARES -dap_protocol EC -parity 3 -testbed local "
        "-load_policy growing -scale paper -resume"
    )
    assert papers.words("object_size", given.split()) == [
        *(
            "run",
            "object_size",
            "--testbed",
            "local",
            "--scale",
            "paper",
            "--protocol",
            "ARES_EC,COARES_EC_F",
            "--results",
            "results/sizes",
        ),
        *(
            "--set",
            "fast_read=false",
            "--set",
            "parity=3",
            "--set",
            "load_policy=growing",
            "--resume",
        ),
    ]
    assert papers.words("servers", []) == [
        "run",
        "servers",
        "--testbed",
        "processes",
        "--scale",
        "quick",
    ]


@pytest.mark.parametrize(
    "given",
    [
        "-parity 3",
        "-protocol ARES -dap_protocol ABD -parity 3",
        "-exp_name ../elsewhere",
        "-exp_name .",
    ],
)
def test_flags_that_do_not_go_together_are_refused(given):
    with pytest.raises(BadInput, match="nothing was begun"):
        papers.words("object_size", given.split())


def test_installing_is_one_playbook(tmp_path):
    inventory = tmp_path / "inventory.yml"
    with pytest.raises(BadInput, match="nothing was installed"):
        papers.installation(["-testbed", "aws", "-inventory", str(inventory)])
    inventory.touch()
    command = papers.installation(
        ["-testbed", "aws", "-proxy", "true", "-inventory", str(inventory)]
    )
    assert command[1:] == [
        "-i",
        str(inventory),
        str(papers.INSTALL_PLAYBOOK),
        "-e",
        "testbed=aws",
        "-e",
        "proxy=true",
    ]
    assert papers.INSTALL_PLAYBOOK.is_file()


def test_parameters_and_switches_take_other_values():
    plain = scenarios()["object_size"]
    (*_, changed) = plain.changed(
        ["parity=3", "object_size=7", "fast_read=false", "load_policy=growing"]
    ).rounds("quick", ["ARES_EC"])
    parameters = changed.parameters
    assert (parameters.parity, parameters.object_size, parameters.load_policy) == (3, 7, "growing")
    assert changed.varied.keys() == {
        *("published", "object_size", "parity", "switches", "load_policy")
    }
    assert set(list(plain.rounds("quick"))[-1].parameters.switches) - set(parameters.switches) == {
        "fast_read"
    }
    varied = scenarios()["piggyback"]
    fast = list(varied.changed(["fast_read=true"]).rounds("quick"))
    assert all("fast_read" in round.parameters.switches for round in fast)
    todays = [round for round in varied.rounds("quick") if not round.parameters.published]
    assert len(fast) == len(todays)


OUTSIDE = (
    "readers=0",
    "writers=0",
    "servers=1000",
    "operations=-1",
    "object_size=-1",
    "interval_s=-1",
    "crashes=-1",
    "timeout_s=1e9",
)


@pytest.mark.parametrize(
    "word",
    [
        "parity",
        "colour=red",
        "fast_read=perhaps",
        "switches=[]",
        "\x1b=1",
        "parity=many",
        "servers=2.5",
        *OUTSIDE,
    ],
)
def test_other_values_that_cannot_be_are_refused(word):
    with pytest.raises(BadInput):
        list(scenarios()["object_size"].changed([word]).rounds("quick"))
