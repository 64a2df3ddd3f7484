"""Interrupted runs of rounds: what is taken for done, and what the exit status tells."""

import msgspec
import pytest

from ares.model.errors import BadInput
from experiments.__main__ import main
from experiments.rounds import round_commands
from experiments.rounds.engine import Engine
from experiments.rounds.scenario import Parameters, ScenarioRound

SHORT = ScenarioRound("short", "ARES_EC", Parameters(interval_s=0.2), {"servers": 4}, 1, ())


def test_a_round_of_other_settings_is_not_taken_for_done(tmp_path):
    """The name of a round has the varied parameters only: pauses, for example, are not there."""
    directory = tmp_path / SHORT.scenario / SHORT.name
    directory.mkdir(parents=True)
    (directory / "outcome.json").write_text("{}")
    parameters = msgspec.to_builtins(SHORT.parameters) | {"checked": "linearizable"}
    (directory / "run.json").write_bytes(msgspec.json.encode({"parameters": parameters}))
    engine = Engine(tmp_path, 1, [].append)
    assert engine.run([SHORT], resume=True) == []
    longer = msgspec.structs.replace(SHORT.parameters, interval_s=9.0)
    other = msgspec.structs.replace(SHORT, parameters=longer)
    assert other.name == SHORT.name
    with pytest.raises(BadInput, match=r"interval_s 0\.2 instead of 9\.0"):
        engine.run([other], resume=True)
    (directory / "run.json").unlink()
    with pytest.raises(BadInput, match="has an outcome, and no run"):
        engine.run([SHORT], resume=True)


def test_a_failed_import_is_told_by_the_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr(round_commands.Engine, "run", lambda *_: [])
    words = ["run", "steps", "--scale", "quick", "--results", str(tmp_path)]
    for status in (0, 1):
        monkeypatch.setattr(round_commands, "report", lambda _, status=status: status)
        assert main(words) == status
