"""Who may ask what: looked at once for every batch, before a server or a consensus member sees any of it.

A client's key has a role, and each role includes those before it: read, write, reconfigure, admin. A reader may also spread successors, for
that is how ARES finds its way (rule R3), but only decided ones: each carries its certificate. Two things that the certificate does not cover need the
role ``reconfigure``. One is to *finalize*: a client that called a decided configuration finalized too early would send readers where the data is not
yet. From others a server takes a finalized successor as a pending one; that a quorum knows it is all that R3 asks. The other is to *collect*, which
drops data. And a domain's directory entry says where the domain begins, so that it is a kind of pointer, too; and what lets it follow its users
moves it. Other reserved names that no operation of a writer puts take that role as well: under such
a name clients could not replace an object that stops a move (`takes_more_than_write`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ares.model.configuration import Configuration, Status, Successor
from ares.model.identity import ConfigurationId, takes_more_than_write
from ares.model.log_messages import Append, Committed, Fetch, Forward, LookRow
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    REQUESTS,
    AnyMessage,
    Bring,
    Carrier,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PutData,
    ReadConfig,
    Reason,
    Refused,
    TellFinalized,
    WriteConfig,
)
from ares.model.messages import Role as Role
from ares.replica.hosting import Hosting

if TYPE_CHECKING:
    from ares.security.clients_file import AuthorisedClients

ROLES = {role.name.lower(): role for role in Role}


class Client(Struct, frozen=True):
    """An authorised client: ``name`` is for people, ``key`` is the public key (hex) that it proved to have.

    ``server``: the id of the server whose key that is; empty if it is none's.
    """

    name: str
    key: str
    role: Role
    server: str = ""


NOTHING_HOSTED: Mapping[ConfigurationId, Hosting] = {}
"""What a consensus member keeps."""

_NO_PROOF = "nothing proves that the consensus service of this cluster decided that configuration"


class Admission:
    """What clients may ask of one process. ``decided`` says whether a configuration carries the proof that it was decided."""

    def __init__(
        self, authorised: "AuthorisedClients", decided: Callable[[Configuration], bool]
    ) -> None:
        self._authorised = authorised
        self._decided = decided

    @property
    def unknown_keys(self) -> int:
        """How many attempts to connect were refused."""
        return self._authorised.unknown_keys

    def may_write(self, sender: Hashable) -> bool | None:
        """Whether this client may put objects, where nothing needs more; None if it may not even read."""
        client = self._authorised.client(sender)
        return None if client is None else client.role >= Role.WRITE

    def admit(
        self,
        sender: Hashable,
        messages: Iterable[AnyMessage],
        hosted: Mapping[ConfigurationId, Hosting] = NOTHING_HOSTED,
    ) -> tuple[Iterator[AnyMessage], list[AnyMessage]]:
        """What of these may be handled, one looked at after the other was handled, and the refusals of the rest, complete when all were looked at.
        ``hosted``: what the server keeps.

        After one forgery no certificate among them is looked at any more: each takes a third of a millisecond, and a batch has room for thousands.
        """
        refused: list[AnyMessage] = []
        return self._admitted(sender, messages, hosted, refused), refused

    def _admitted(
        self,
        sender: Hashable,
        messages: Iterable[AnyMessage],
        hosted: Mapping[ConfigurationId, Hosting],
        refused: list[AnyMessage],
    ) -> Iterator[AnyMessage]:
        client = self._authorised.client(sender)
        if client is None:
            why = "this client's key is not authorised (any more)"
            refused.extend(
                Refused(message.call, Reason.NOT_AUTHORIZED, why) for message in messages
            )
            return
        introduced: dict[ConfigurationId, Configuration] = {}
        forged = False
        may_write = client.role >= Role.WRITE
        for message in messages:
            if _is_plain(message, may_write):
                yield message
                continue
            refusal = self._refusal(client, message, forged)
            if refusal is not None:
                forged = forged or refusal.reason is Reason.NOT_CERTIFIED
                refused.append(refusal)
                continue
            if isinstance(message, Introduce):
                introduced[message.configuration.id] = message.configuration
            elif client.role < Role.RECONFIGURE and isinstance(message, Told):
                own = hosted.get(message.configuration)
                message = _hearsay(
                    message,
                    own.configuration if own is not None else introduced.get(message.configuration),
                )
            yield message

    def _refusal(self, client: Client, message: AnyMessage, forged: bool) -> Refused | None:
        """``forged``: a certificate in the same batch was."""
        row = REQUESTS.get(
            type(message)
        )  # what is no request needs no role: its receiver refuses it
        needed = Role.READ if row is None else row.role
        if isinstance(message, PutData) and takes_more_than_write(message.object):
            needed = Role.RECONFIGURE
        if client.role < needed:
            role = client.role.name.lower()
            why = f"{type(message).__name__} takes the role {needed.name.lower()}, and the key of {client.name!r} has the role {role}"
            return Refused(message.call, Reason.NOT_AUTHORIZED, why)
        if isinstance(message, Forward | Committed) and (
            not client.server or client.server != message.server
        ):
            return Refused(
                message.call,
                Reason.NOT_AUTHORIZED,
                f"only the server {message.server[:DETAIL_CHARACTERS_MAX]!r} sends that",
            )
        if isinstance(message, Fetch | LookRow) and not client.server:
            return Refused(message.call, Reason.NOT_AUTHORIZED, "only servers send that")
        told: list[Configuration] = []
        if isinstance(message, Introduce | TellFinalized):
            told = [
                message.configuration,
                *(message.earlier if isinstance(message, Introduce) else ()),
            ]
        elif isinstance(message, Bring):
            told = [message.source]
        elif isinstance(message, Carrier) and message.successor is not None:
            told = [message.successor.configuration]
        decided = not told or (not forged and all(map(self._decided, told)))
        return None if decided else Refused(message.call, Reason.NOT_CERTIFIED, _NO_PROOF)


Told = GetData | ListObjects | WriteConfig | LookRow | Fetch
"""What a client that may not reconfigure carries successors with."""


def _is_plain(message: AnyMessage, may_write: bool) -> bool:
    """Whether it is one of those that reads and writes consist of, in a domain that stays where it is, and nothing has to be proved for it.

    It says nothing that the rest does not say as well: what most messages are is found out faster.
    """
    if isinstance(message, GetTag):
        return True
    if isinstance(message, GetData):
        return message.successor is None
    return may_write and (
        isinstance(message, Append)
        or (isinstance(message, PutData) and not takes_more_than_write(message.object))
    )


def _hearsay(message: Told, own: Configuration | None) -> Told | ReadConfig:
    """The message with a pending successor in place of a finalized one. ``own``: the configuration that it is about, if the server knows it.

    Only the next configuration can be pending. One further on was reached over the next one, which a quorum knows: there is nothing to spread.
    """
    if message.successor is None or not message.successor.finalized:
        return message
    following = message.successor.configuration
    if own is None or following.index == own.index + 1:
        return replace(message, successor=Successor(following, Status.PENDING))
    return (
        ReadConfig(message.call, message.configuration)
        if isinstance(message, WriteConfig)
        else replace(message, successor=None)
    )
