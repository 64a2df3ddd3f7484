"""The race: rivals put the same keys, if absent; a key has a single winner.

A rival behaves as an SDK: after a 5xx or a lost connection the rival sends the attempt again with
the same invocation id. The history of a key is right if a single rival got 200, the rest 412, and
the object is the winner's.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence

from ares.platform.loop import run
from experiments.gateway.s3_stores import s3_stores
from experiments.gateway.signed_connection import S3Endpoint, SignedConnection
from experiments.measuring import Table

RACE_RIVALS = 8
RIVAL_RACE_KEYS = {"quick": 500, "paper": 2_000}
RACE_GATEWAYS = (1, 3)
RACE_ATTEMPTS_MAX = 20
ATTEMPT_PAUSE_S = 0.3


def measure_race(table: Table, scale: str) -> None:
    """Let rivals race at one gateway and at three, and print the number of winners a key."""
    for name, running in s3_stores().items():
        for count in RACE_GATEWAYS:
            keys = RIVAL_RACE_KEYS[scale]
            table.section(f"{name}: {RACE_RIVALS} rivals, {keys} keys, {count} gateways")
            with running(count) as endpoints:
                history = run(_race(endpoints, keys))
            winners = Counter(sum(status == 200 for status, _ in key) for key in history)
            told = ", ".join(f"{many} winners: {count}" for many, count in sorted(winners.items()))
            table.note(f"keys by winners: {told}")
            others = Counter(status for key in history for status, _ in key)
            table.note(f"answers: {dict(sorted(others.items()))}")
            right = sum(map(_is_right, history))
            table.line("keys with one winner, whose object is there", [right / keys * 100], "%")


Outcome = tuple[int, str]
"""The status of an answer, and the etag: of the put object, or of the object found at the end."""


def _is_right(key: Sequence[Outcome]) -> bool:
    *rivals, found = key
    won = [etag for status, etag in rivals if status == 200]
    lost = sum(status == 412 for status, _ in rivals)
    return len(won) == 1 and lost == len(rivals) - 1 and found == (-200, won[0])


async def _race(endpoints: Sequence[S3Endpoint], keys: int) -> list[list[Outcome]]:
    """Return the outcomes of a key: the rivals', then the object's with a negative status."""
    connections = [
        SignedConnection(endpoints[rival % len(endpoints)]) for rival in range(RACE_RIVALS)
    ]
    await connections[0].request("PUT", "/race")
    history: list[list[Outcome]] = []
    for number in range(keys):
        path = f"/race/{number:05}"
        puts = (_put(each, path, rival) for rival, each in enumerate(connections))
        outcomes = list(await asyncio.gather(*puts))
        found = await connections[number % RACE_RIVALS].request("HEAD", path)
        history.append([*outcomes, (-found.status, found.etag)])
    for each in connections:
        each.close()
    return history


async def _put(connection: SignedConnection, path: str, rival: int) -> Outcome:
    body = f"rival {rival} of {path}".encode()
    invocation = secrets.token_hex(16)
    for attempt in range(1, RACE_ATTEMPTS_MAX + 1):
        headers = {
            "amz-sdk-invocation-id": invocation,
            "amz-sdk-request": f"attempt={attempt}; max={RACE_ATTEMPTS_MAX}",
            "if-none-match": "*",
        }
        try:
            answer = await connection.request("PUT", path, body, headers=headers)
        except (OSError, EOFError):
            answer = None
        if answer is not None and answer.status < 500:
            return answer.status, answer.etag
        await asyncio.sleep(ATTEMPT_PAUSE_S)
    return 0, ""
