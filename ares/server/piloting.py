"""What a consensus member flies the autopilot with, put together from the cluster file and the member's key."""

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from ares.cluster.settings import MemberSettings, Settings
from ares.consensus.port import Consensus
from ares.machine.memory import CLIENT_BYTES, keep_freed_memory
from ares.model.identity import ClientId

if TYPE_CHECKING:
    from ares.autopilot.pilot import Autopilot


def piloted(settings: Settings, member: MemberSettings) -> "Callable[[Consensus, Callable[[], bool]], Autopilot] | None":
    """What makes the autopilot of ``member``, on the event loop; None where the cluster file asks for none. It decides over the member itself.

    Raises :class:`ares.BadInput` when the member's secret cannot be used: with keys, it is a client of the servers under its own.
    """
    asked = settings.autopilot
    if asked is None:
        return None
    from ares.autopilot.pilot import Autopilot
    from ares.client.connect import decided_by
    from ares.client.manager import Manager
    from ares.net.transports import connections as connections_with
    from ares.reconfig.view import Switches

    keep_freed_memory(CLIENT_BYTES)
    key = None if settings.security is None else settings.security.process_key(member.id, member.public_key)

    def make(consensus: Consensus, leads: Callable[[], bool]) -> Autopilot:
        client, book = ClientId(secrets.randbits(64)), settings.book()
        connections, timeout_s = connections_with(key, settings.transport), settings.client.timeout_s
        manager = Manager(connections, consensus, settings.initial, book, client, Switches(), timeout_s, decided_by(settings))
        return Autopilot(manager, book, leads, asked)

    return make
