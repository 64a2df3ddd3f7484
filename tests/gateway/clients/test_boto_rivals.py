"""Rivals with the same condition, at two gateways: one wins."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from .s3_service import S3Service

pytestmark = [pytest.mark.process, pytest.mark.slow]

RIVALS, KEYS = 8, 40


def race(service: S3Service, rounds: int, change: Any) -> list[list[Any]]:
    """Let RIVALS make ``change(client, number of the rival, round)`` at the same time, by rounds.

    The results of a round are statuses of failures, or the returned values.
    """
    from botocore.exceptions import ClientError

    barrier = Barrier(RIVALS)

    def run(rival: int) -> list[Any]:
        client = service.boto(endpoint=rival % len(service.endpoints), attempts=5)
        outcomes: list[Any] = []
        try:
            for number in range(rounds):
                barrier.wait(120)
                try:
                    outcomes.append(change(client, rival, number))
                except ClientError as error:
                    outcomes.append(error.response["ResponseMetadata"]["HTTPStatusCode"])
        except BaseException:
            barrier.abort()
            raise
        return outcomes

    with ThreadPoolExecutor(RIVALS) as pool:
        return [list(each) for each in zip(*pool.map(run, range(RIVALS)), strict=True)]


def test_one_of_eight_makes_an_absent_object(service: S3Service, s3: Any, bucket: str) -> None:
    def put(client: Any, rival: int, number: int) -> str:
        body = bytes([rival]) * (9 << 20 if number == 0 else 100)
        words = {"Bucket": bucket, "Key": f"k{number}", "Body": body}
        return str(client.put_object(IfNoneMatch="*", **words)["ETag"])

    for number, outcomes in enumerate(race(service, KEYS, put)):
        winners = [each for each in outcomes if each != 412]
        assert len(winners) == 1, (number, outcomes)
        found = s3.head_object(Bucket=bucket, Key=f"k{number}")
        assert found["ETag"] == winners[0]


def test_one_of_eight_swaps(service: S3Service, s3: Any, bucket: str) -> None:
    """Eight rivals add to one counter; each increment is made once."""
    s3.put_object(Bucket=bucket, Key="n", Body=b"0")
    rounds = 10

    def swap(client: Any, rival: int, number: int) -> int:
        found = client.get_object(Bucket=bucket, Key="n")
        value = int(found["Body"].read()) + 1
        words = {"Bucket": bucket, "Key": "n", "Body": str(value).encode()}
        client.put_object(IfMatch=found["ETag"], **words)
        return -value

    made = [each for outcomes in race(service, rounds, swap) for each in outcomes if each != 412]
    assert all(count == 1 for count in Counter(made).values())
    assert s3.get_object(Bucket=bucket, Key="n")["Body"].read() == str(len(made)).encode()
    assert len(made) >= rounds


def test_one_of_eight_deletes(service: S3Service, s3: Any, bucket: str) -> None:
    """The condition of a deletion is an etag: the others find another object, or none."""
    etags = [
        s3.put_object(Bucket=bucket, Key=f"k{number}", Body=str(number).encode())["ETag"]
        for number in range(10)
    ]

    def delete(client: Any, rival: int, number: int) -> str:
        client.delete_object(Bucket=bucket, Key=f"k{number}", IfMatch=etags[number])
        return "deleted"

    for outcomes in race(service, 10, delete):
        assert Counter(outcomes)["deleted"] == 1, outcomes


def test_what_one_gateway_answered_another_has(service: S3Service, s3: Any, bucket: str) -> None:
    """Reads and listings see every change answered before, at any gateway."""
    clients = [service.boto(endpoint) for endpoint in range(len(service.endpoints))]
    for number in range(30):
        writer, reader = clients[number % len(clients)], clients[(number + 1) % len(clients)]
        writer.put_object(Bucket=bucket, Key="k", Body=str(number).encode())
        assert reader.get_object(Bucket=bucket, Key="k")["Body"].read() == str(number).encode()
        writer.put_object(Bucket=bucket, Key=f"l{number:02}", Body=b"")
        assert reader.list_objects_v2(Bucket=bucket)["KeyCount"] == number + 2
        assert reader.list_objects_v2(Bucket=bucket, Prefix=f"l{number:02}")["KeyCount"] == 1
