"""What a process of a cluster with keys guards itself with, put together from the cluster file and the secrets beside it."""

from collections.abc import Callable

from msgspec import Struct

from ares.cluster.settings import Settings
from ares.consensus.port import Consensus
from ares.security.lock import Lock
from ares.security.roles import Admission, Client, Role


class Guard(Struct, frozen=True):
    """``lock``: for the listener; ``admission``: for what serves its clients. Both None in a cluster without keys."""

    lock: Lock | None = None
    admission: Admission | None = None


def guard_of(settings: Settings, id: str, public_key: str) -> Guard:
    """For the server or consensus member ``id``. Raises :class:`ares.BadInput` when its secret or the list of clients cannot be used."""
    security = settings.security
    if security is None:
        return Guard()
    from ares.security.certificates import Verifier
    from ares.security.clients_file import AuthorisedClients

    key = security.process_key(id, public_key)
    clients = AuthorisedClients(security.clients_path, extra=processes_as_clients(settings))
    return Guard(Lock(key, clients), Admission(clients, Verifier(security.decision_key, settings.initial)))


def processes_as_clients(settings: Settings) -> dict[str, Client]:
    """The cluster's own processes, by key: servers read from each other to repair what rotted, and consensus members may reconfigure (autopilot).

    Whoever writes the cluster file names them there, by their public keys; a server that was broken into can so read what others hold, no more.
    """
    servers = [Client(server.id, server.public_key, Role.READ) for server in settings.servers.values()]
    members = [Client(member.id, member.public_key, Role.RECONFIGURE) for member in settings.members.values()]
    return {client.key: client for client in [*servers, *members]}


def certifying(settings: Settings) -> Callable[[Consensus], Consensus] | None:
    """What puts certificates on a member's decisions. Raises :class:`ares.BadInput` when the key for that cannot be used."""
    security = settings.security
    if security is None:
        return None
    from ares.consensus.certified import CertifiedConsensus
    from ares.security.certificates import Signer, Verifier

    signer, verifier = Signer(security.signing_key()), Verifier(security.decision_key, settings.initial)
    return lambda consensus: CertifiedConsensus(consensus, settings.initial, signer, verifier)
