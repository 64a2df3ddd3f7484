"""The protocol with admission, under simulated faults: only reconfigurers finalize.

No data is lost and no client gets stuck for this reason.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from ares.model.codec import decode, encode
from ares.model.messages import AnyMessage, GetData, ListObjects, Role, WriteConfig
from ares.security import roles as admission
from ares.security.clients_file import AuthorisedClient
from ares.security.roles import Admission
from ares.testing.sim.plan import OBJECT_SCENARIOS, draw
from ares.testing.sim.run import run_plan
from ares.testing.sim.simulated_server import SimServer

pytestmark = pytest.mark.slow

SEEDS = 12
RECONFIGURERS = "g"
"""Beginning of the names of the simulator's reconfigurers."""


class ByName:
    """A policy in which reconfigurers may reconfigure, and other clients may write."""

    unknown_keys = 0

    def client(self, sender: Hashable) -> AuthorisedClient:
        name = str(sender)
        return AuthorisedClient(
            name, name, Role.RECONFIGURE if name.startswith(RECONFIGURERS) else Role.WRITE
        )


@contextmanager
def admitting() -> Iterator[list[AnyMessage]]:
    """Run simulated servers behind an admission.

    Yield the hearsay that was treated as pending, or left out.
    """
    gate = Admission(ByName(), lambda _: True)
    hearsay: list[AnyMessage] = []
    receive, judged = SimServer.receive, admission._hearsay

    def receive_admitted(server: SimServer, client: str, frames: list[bytes]) -> None:
        waiting, refused = gate.admit(client, decode(frames), server.replica.hosted)
        admitted = list(waiting)
        assert refused == []
        receive(server, client, encode(admitted))

    def noted(message: GetData | ListObjects | WriteConfig, own: object) -> AnyMessage:
        result = judged(message, own)  # type: ignore[arg-type]
        if result is not message:
            hearsay.append(message)
        return result

    with (
        patch.object(SimServer, "receive", receive_admitted),
        patch.object(admission, "_hearsay", noted),
    ):
        yield hearsay


@pytest.mark.parametrize("scenario", sorted(OBJECT_SCENARIOS))
def test_fixed_seeds_are_clean_with_roles(scenario: str) -> None:
    with admitting():
        for seed in range(SEEDS):
            assert run_plan(draw(seed, scenario)).violation is None, f"{scenario} {seed}"


def test_there_is_hearsay_in_these_runs() -> None:
    with admitting() as hearsay:
        for seed in range(SEEDS):
            run_plan(draw(seed, "reconfigure"))
    jumps = [
        message
        for message in hearsay
        if message.successor is not None and message.successor.configuration.index > 1
    ]  # type: ignore[union-attr]
    assert len(hearsay) > 10
    assert jumps
