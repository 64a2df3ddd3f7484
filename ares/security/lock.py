"""What a server with keys is secured with, whichever transport it has."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

from ares.security.clients_file import AuthorisedClients, KeyedSender
from ares.security.keys import SecretKey

ROLL_CALL_S = 2.0
"""How often clients that are connected are looked up in the list of those who may be."""

REVOKED = "its key was revoked"

Client = TypeVar("Client", bound=Hashable)


class Lock:
    """A server's own key, and the clients that may connect."""

    def __init__(self, key: SecretKey, clients: AuthorisedClients) -> None:
        self.key = key
        self.clients = clients

    def revoked(self, senders: Iterable[Client]) -> list[Client]:
        """Those of the clients that were let in who would not be now."""
        admits = self.clients.admits
        return [sender for sender in senders if isinstance(sender, KeyedSender) and sender.key and not admits(sender.key, "connected before")]
