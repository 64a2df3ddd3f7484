"""Errors: each names the failure, the unharmed data and the remedy (ares/model/errors.py)."""

import pytest

from ares.model import errors
from ares.model.errors import (
    AresError,
    BadInput,
    ConsensusUnavailable,
    DecodeFailed,
    DomainNotFound,
    ObjectNotFound,
    Unavailable,
    Uncertain,
)


def test_all_errors_derive_from_ares_error():
    defined = [
        error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, Exception)
    ]
    assert len(defined) > 8
    assert all(issubclass(error, AresError) for error in defined)


def test_python_catches_them_as_what_they_are():
    assert issubclass(BadInput, ValueError)
    assert issubclass(ObjectNotFound, KeyError)
    assert issubclass(DomainNotFound, KeyError)


def test_errors_tell_the_loss_and_the_remedy():
    assert str(ObjectNotFound("k", "d")) == "no object 'k' in domain 'd'"
    assert "domain create photos" in str(DomainNotFound("photos"))
    assert "nothing was lost" in str(DecodeFailed("k", "because"))
    assert "larger --delta" in str(DecodeFailed("k", "because"))
    assert "no leader" in str(ConsensusUnavailable("no leader"))
    assert "try again when a majority" in str(ConsensusUnavailable("no leader"))


def test_unavailable_names_the_missing_servers_in_order():
    error = Unavailable(3, 1, {"s2": "no answer", "s1": "full"}, "write of 'k'")
    assert (
        str(error)
        == "1 of the 3 servers needed answered while write of 'k'; missing: s1 (full), s2 (no "
        "answer); nothing was changed"
    )
    assert (error.needed, error.heard, error.missing) == (3, 1, {"s1": "full", "s2": "no answer"})


def test_unavailable_without_servers_tells_only_its_story():
    assert str(Unavailable(0, 0, {}, "it waited")) == "it waited; nothing was changed"


@pytest.mark.parametrize(
    "error", [Unavailable(1, 0, {"s0": "no answer"}), Unavailable(0, 0, {}, "it waited")]
)
def test_a_write_half_done_says_so(error):
    assert isinstance(error, Uncertain)
    error.may_have_taken_effect = True
    assert "may have taken effect: read the object" in str(error)
    assert "nothing was changed" not in str(error)
