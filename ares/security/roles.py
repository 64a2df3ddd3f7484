"""The rights of requests, checked once for every batch, before a server or member sees the batch.

A client's key has a role, and each role includes the roles before: read, write, reconfigure, admin.
A reader may also spread successors, which is how ARES finds its way (rule R3), but only decided
successors: each carries its certificate. Two actions not covered by the certificate need the role
``reconfigure``. The first is to *finalize*: a client that called a decided configuration finalized
too early would send readers to a configuration without the data. From other clients a server takes
a finalized successor as a pending successor; R3 asks only that a quorum knows the successor. The
second is to *collect*, which drops data. A domain's directory entry gives the domain's beginning,
and is therefore a kind of pointer, too; the object which lets a domain follow its users moves the
domain. Further reserved names which no operation of a writer puts need the same role: under such a
name clients could not replace an object that stops a move (`takes_more_than_write`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from ares.model.configuration import Configuration, Status, Successor
from ares.model.identity import ConfigurationId, takes_more_than_write
from ares.model.log_messages import Append, Fetch, LookRow, NeighbourMessage
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    REQUEST_KINDS,
    AnyMessage,
    Carrier,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PullElement,
    PutData,
    QueryList,
    ReadConfig,
    Reason,
    Refused,
    Role,
    TellFinalized,
    WriteConfig,
)
from ares.replica.configuration_state import ConfigurationState
from ares.security.clients_file import AuthorisedClient, AuthorisedClients

NOTHING_HOSTED: Mapping[ConfigurationId, ConfigurationState] = {}
"""The objects hosted by a consensus member: none."""

_NO_PROOF = "nothing proves that the consensus service of this cluster decided that configuration"


class Admission:
    """The admission of requests to a process.

    ``decided`` returns whether a configuration carries the proof of its decision.
    """

    def __init__(
        self, authorised: AuthorisedClients, decided: Callable[[Configuration], bool]
    ) -> None:
        self._authorised = authorised
        self._decided = decided

    @property
    def unknown_keys(self) -> int:
        """Return the number of refused attempts to connect."""
        return self._authorised.unknown_keys

    def may_write(self, sender: Hashable) -> bool | None:
        """Return whether this client may put plain objects; None without the role read.

        Plain objects need no further right.
        """
        client = self._authorised.client(sender)
        return None if client is None else client.role >= Role.WRITE

    def admit(
        self,
        sender: Hashable,
        messages: Iterable[AnyMessage],
        hosted: Mapping[ConfigurationId, ConfigurationState] = NOTHING_HOSTED,
    ) -> tuple[Iterator[AnyMessage], list[AnyMessage]]:
        """Return the messages to be handled, and the refusals of the rest.

        Each message is checked after the previous one was handled; the list of refusals is complete
        after the last check. ``hosted``: the server's state. After a forgery no further certificate
        of the batch is verified: each takes a third of a millisecond, and a batch has room for
        thousands.
        """
        refused: list[AnyMessage] = []
        return self._admitted(sender, messages, hosted, refused), refused

    def _admitted(
        self,
        sender: Hashable,
        messages: Iterable[AnyMessage],
        hosted: Mapping[ConfigurationId, ConfigurationState],
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
            elif client.role < Role.RECONFIGURE and isinstance(message, SuccessorCarrier):
                own = hosted.get(message.configuration)
                message = _hearsay(
                    message,
                    own.configuration if own is not None else introduced.get(message.configuration),
                )
            yield message

    def _refusal(
        self, client: AuthorisedClient, message: AnyMessage, forged: bool
    ) -> Refused | None:
        """Return the refusal of a message, or None. ``forged``: the batch has a forgery."""
        # a message that is no request needs no role: its receiver refuses it
        row = REQUEST_KINDS.get(type(message))
        needed = Role.READ if row is None else row.role
        if isinstance(message, PutData) and takes_more_than_write(message.object):
            needed = Role.RECONFIGURE
        if client.role < needed:
            role = client.role.name.lower()
            why = (
                f"{type(message).__name__} takes the role {needed.name.lower()}, and the key of "
                f"{client.name!r} has the role {role}"
            )
            return Refused(message.call, Reason.NOT_AUTHORIZED, why)
        if isinstance(message, NeighbourMessage) and (
            not client.server or client.server != message.server
        ):
            return Refused(
                message.call,
                Reason.NOT_AUTHORIZED,
                f"only the server {message.server[:DETAIL_CHARACTERS_MAX]!r} sends that",
            )
        if isinstance(message, Fetch | LookRow) and not client.server:
            return Refused(message.call, Reason.NOT_AUTHORIZED, "only servers send that")
        carried: list[Configuration] = []
        if isinstance(message, Introduce | TellFinalized):
            carried = [
                message.configuration,
                *(message.earlier if isinstance(message, Introduce) else ()),
            ]
        elif isinstance(message, PullElement):
            carried = [message.source]
        elif isinstance(message, Carrier) and message.successor is not None:
            carried = [message.successor.configuration]
        decided = not carried or (not forged and all(map(self._decided, carried)))
        return None if decided else Refused(message.call, Reason.NOT_CERTIFIED, _NO_PROOF)


SuccessorCarrier = GetData | ListObjects | QueryList | WriteConfig | LookRow | Fetch
"""Messages with which a client without the role ``reconfigure`` carries successors."""


def _is_plain(message: AnyMessage, may_write: bool) -> bool:
    """Return whether the message is a plain part of reads and writes, without need of a proof.

    The domain stays in its place. The check gives the same answer as the complete check, faster for
    most messages.
    """
    if isinstance(message, GetTag):
        return True
    if isinstance(message, GetData):
        return message.successor is None
    return may_write and (
        isinstance(message, Append)
        or (isinstance(message, PutData) and not takes_more_than_write(message.object))
    )


def _hearsay(message: SuccessorCarrier, own: Configuration | None) -> SuccessorCarrier | ReadConfig:
    """Return the message with a pending successor in place of a finalized one.

    ``own``: the configuration of the request, if known to the server. Only the next configuration
    can be pending. A later configuration was reached over the next one, which a quorum knows: no
    successor needs to be spread.
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
