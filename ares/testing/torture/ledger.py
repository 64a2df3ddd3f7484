"""The nemesis' bookkeeping: whom it may hurt without breaking what the configurations in use promise to survive. No I/O.

A server that keeps everything in memory has lost it when it was killed. It comes back with a new identity and stays lost, for ever, to every
configuration that names the old one; with a store it comes back as the same. So for each configuration in use, the last finalized one and all that
are or may yet become decided, the members that are in trouble *or* are not who they were are counted, and never more than ``crashes_survived`` of
them are allowed at once.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, structs

from ares.model.configuration import Configuration, Server
from ares.model.identity import ServerId
from ares.testing.torture.records import Done

Trouble = Literal["dead", "stopped", "partitioned"]


class _Pending(Struct):
    """A configuration that somebody wants or wanted; ``begun`` and ``ended`` count beginnings and ends of attempts (None: still at it)."""

    configuration: Configuration
    begun: int
    ended: int | None = None


class Ledger:
    """``initial``: c0, under the identities that its servers have at first."""

    def __init__(self, initial: Configuration, identities: Mapping[ServerId, str], members: Iterable[ServerId]) -> None:
        self.identities = dict(identities)
        self.trouble: dict[ServerId, Trouble] = {}
        self._members = tuple(members)
        self._finalized = {initial.index: initial}  # from the last that was announced on
        self._pending: dict[int, _Pending] = {}
        self._clock = 0

    # -- servers and members --------------------------------------------------------------------------------------------

    @property
    def well(self) -> list[ServerId]:
        """Servers that a new configuration may name."""
        return [server for server in self.identities if server not in self.trouble]

    @property
    def members_well(self) -> list[ServerId]:
        """Consensus members that run and are connected."""
        return [member for member in self._members if member not in self.trouble]

    def lost(self, configuration: Configuration) -> set[ServerId]:
        """The members of ``configuration`` that cannot answer in it now."""
        return {server.id for server in configuration.servers if server.id in self.trouble or server.identity != self.identities[server.id]}

    def may_hurt(self, who: ServerId) -> bool:
        """Whether a server or consensus member that is well may be killed, stopped or cut off now."""
        if who in self.trouble:
            return False
        if who in self._members:
            return len(self._members) - len(self.members_well) < (len(self._members) - 1) // 2
        return all(len(self.lost(configuration) | {who}) <= configuration.crashes_survived for configuration in self._naming(who))

    def hurt(self, who: ServerId, how: Trouble) -> None:
        """It is in trouble from now on. Ask :meth:`may_hurt` first. One in trouble may get into worse: dying costs nobody more than silence."""
        self.trouble[who] = how

    def recovered(self, who: ServerId, identity: str | None = None) -> None:
        """It is well again; ``identity``: that of a server's new life."""
        del self.trouble[who]
        if identity is not None:
            self.identities[who] = identity

    # -- configurations -------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> list[Configuration]:
        """Configurations that clients may have to work with."""
        return [*self._finalized.values(), *(pending.configuration for pending in self._pending.values())]

    def wished(self, number: int, configuration: Configuration) -> None:
        """Attempt ``number`` to install ``configuration`` begins."""
        servers = tuple(Server(id, identity=self.identities[id]) for id in configuration.server_ids)
        self._pending[number] = _Pending(structs.replace(configuration, servers=servers), self._tick())

    def refused(self, number: int) -> None:
        """The attempt ended before anything was proposed."""
        del self._pending[number]

    def left(self, number: int) -> None:
        """The attempt ended nobody knows where; its configuration may be decided, and then somebody must finish it."""
        self._pending[number].ended = self._tick()

    def done(self, number: int, result: Done) -> None:
        """The attempt ended with ``result``. If that was announced, what came before is out of use: a client that is left behind finds its way.

        So are the configurations of all attempts that had ended before this one began, since it found and finished what they had left. An attempt
        that still goes on, or ended later, may yet have its own decided after this one.
        """
        begun = self._pending.pop(number).begun
        index = result.configuration.index
        if index >= min(self._finalized):
            self._finalized[index] = result.configuration
        if result.announced:
            self._finalized = {other: configuration for other, configuration in self._finalized.items() if other >= index}
            over = [other for other, pending in self._pending.items() if pending.ended is not None and pending.ended < begun]
            for other in over:
                del self._pending[other]

    def _naming(self, who: ServerId) -> list[Configuration]:
        return [configuration for configuration in self.in_use if who in configuration.server_ids and who not in self.lost(configuration)]

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
