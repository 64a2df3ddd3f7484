"""The table of errors: each outcome and error of ares has an answer, which names no server."""

import pytest

import ares
from ares.bucket.bucket_requests import SessionEnded
from ares.bucket.bucket_session import SessionBusy
from ares.bucket.command_results import CommandOutcome
from ares.bucket.fold import UnknownLevel
from ares.client.buckets.bucket_errors import BucketsMissing, ChangeUncertain
from ares.client.buckets.bucket_index import BucketIndex
from ares.gateway.actions.error_table import OUTCOME_CODES, outcome_error, s3_error
from ares.gateway.actions.gateway_services import attempt_number
from ares.gateway.s3.s3_errors import S3Error
from ares.model.errors import AresError, Unavailable
from tests.gateway.actions.conftest import sent


@pytest.mark.parametrize("outcome", [each for each in CommandOutcome if each.value], ids=str)
def test_every_outcome_has_a_code(outcome):
    error = outcome_error(outcome, 17)
    assert error.headers["x-ares-position"] == "17"
    assert ("Retry-After" in error.headers) == (error.code.status == 503)


def test_done_is_no_error():
    assert CommandOutcome.DONE not in OUTCOME_CODES


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ChangeUncertain("secret-server"), 503, "may have been made"),
        (ares.IndexStopped("secret-server"), 503, "may have been made"),
        (ares.IndexBehind(5), 503, "may have been made"),
        (Unavailable(2, 1, {"secret-server": "down"}, "x"), 503, "Nothing was changed"),
        (SessionEnded("secret-server"), 503, "Nothing was changed"),
        (SessionBusy("secret-server"), 503, "Nothing was changed"),
        (UnknownLevel("secret-server"), 503, "upgrade"),
        (BucketsMissing(), 503, "bucket init"),
        (ares.BucketNotFound("b"), 404, ""),
        (AresError("secret-server"), 500, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_of_ares_is_one_of_s3(error, status, said):
    answer = s3_error(error)
    assert answer.code.status == status
    assert said in answer.message
    assert "secret-server" not in answer.message


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("attempt=1; max=5", 1),
        ("attempt=3", 3),
        ("max=5;attempt=2", 2),
        ("", 2),
        ("attempt=x", 2),
        ("attempt=0", 1),
        ("attempt=99999999999999999999", 2),
        ("attempt=²", 2),
    ],
)
def test_an_attempt_without_a_number_is_a_later_one(text, number):
    assert attempt_number(text) == number


async def test_a_lost_answer_is_told_as_uncertain_and_the_repeat_gets_the_result(
    gateway, rival, monkeypatch
):
    """The put succeeds, the answer is lost on the way from the log, and the client repeats."""
    commit = BucketIndex.commit

    async def lost(*given):
        await commit(*given)
        raise ChangeUncertain("the log did not answer in time")

    monkeypatch.setattr(BucketIndex, "commit", lost)
    headers = {"if-none-match": "*"} | sent("one")
    answer = await gateway("PutObject", "photos", "k", b"1", headers=headers)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    monkeypatch.setattr(BucketIndex, "commit", commit)
    headers |= sent("one", 2)
    again = await rival("PutObject", "photos", "k", b"1", headers=headers)
    assert again.status == 200


async def test_a_read_changes_nothing_whatever_the_failure(gateway, monkeypatch):
    async def stopped(index, timeout_s):
        raise ares.IndexStopped("a test")

    monkeypatch.setattr(BucketIndex, "verified", stopped)
    with pytest.raises(S3Error, match="Nothing was changed"):
        await gateway.response("HeadObject", "photos", "k")
    with pytest.raises(S3Error, match="may have been made"):
        await gateway.response("PutObject", "photos", "k", headers={"if-match": "*"} | sent("one"))
