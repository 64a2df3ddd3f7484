"""The reason of a playbook's failure, in a sentence, from the callback's events."""

import pytest

from experiments.rounds.playbook_runs import PlayFailure, failure_of, failure_sentence, reason_of


def event(kind="failed", **more):
    return {
        "event": kind,
        "play": "Wait",
        "task": "Wait for the end of the work",
        "host": "reader0",
        "message": "it ended",
    } | more


def test_the_reason_of_a_module_is_its_first_sentence_and_the_end_of_its_log():
    message = (
        "work: it ended with status 1. /var/lib/r/logs/work.out ends with:\n"
        "Traceback\n"
        "  File x\n"
        "BadInput: no such key\n"
    )
    assert reason_of(message) == "work: it ended with status 1: BadInput: no such key"
    assert reason_of(
        "Failed to connect to the host via ssh: Host key verification failed.\r\nmore"
    ) == ("Failed to connect to the host via ssh: Host key verification failed.")
    assert reason_of("") == "it does not say why"
    assert "\x1b" not in reason_of("a\x1b[31mb")


def test_only_failures_are_failures():
    assert failure_of(event("ok")) is None
    assert failure_of({}) is None
    assert failure_of(event()) == PlayFailure(
        "reader0", "Wait: Wait for the end of the work", "it ended", False
    )
    assert failure_of(event("unreachable")).unreachable


@pytest.mark.parametrize(
    ("failures", "said", "why"),
    [
        ([PlayFailure("a", "Do it", "no", False)], "", "a: Do it: no"),
        (
            [PlayFailure("a", "Do it", "timed out", True), PlayFailure("b", "t", "r", False)],
            "",
            "a: cannot be reached: timed out (1 more host failed)",
        ),
        (
            [],
            "warning\nERROR! no such file\nlast",
            "ansible-playbook ended with status 4: ERROR! no such file",
        ),
        ([], "", "ansible-playbook ended with status 4: it said nothing"),
    ],
)
def test_a_failure_is_a_sentence(failures, said, why):
    assert failure_sentence(failures, 4, said) == why
