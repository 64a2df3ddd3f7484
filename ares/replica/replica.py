"""A server as a function: a request in, a reply out; no I/O (ARES II Alg. 4; docs/protocol.md, Rules).

A server is a member of a configuration under its own identity, or refuses. A configuration that it has never seen is introduced by a client with its
content; the server checks that it is a member and that no other configuration has that place before it keeps state. A server that restarted without
its state has a new identity, so configurations that name the old one are refused: that counts as a crash, which reconfiguration repairs.
"""

from collections.abc import Callable, Mapping

from ares.model.configuration import Configuration, ConflictingSuccessor
from ares.model.errors import BadInput
from ares.model.identity import ConfigurationId, DomainName, ServerId
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    Describe,
    Description,
    Introduce,
    Keyed,
    Message,
    Reason,
    Refused,
    Reply,
    Request,
)
from ares.model.version import VERSION
from ares.replica.hosting import BadElement, Hosting


class Replica:
    """One storage server's state. ``initial``: c0 of its cluster file, the only configuration it accepts at that place.

    ``hosting(configuration, position)`` makes the state of one configuration.
    """

    def __init__(self, server: ServerId, identity: str, initial: Configuration, hosting: Callable[[Configuration, int], Hosting] = Hosting) -> None:
        self.server = server
        self.identity = identity
        self._cluster = initial.cluster_id
        self._hosting = hosting
        self._hosted: dict[ConfigurationId, Hosting] = {}
        self._places: dict[tuple[DomainName, int], ConfigurationId] = {(initial.domain, initial.index): initial.id}
        self.introduce(initial)

    def handle(self, request: Request) -> Reply | None:
        """The reply, or None where none is due. Never raises for what a client sent."""
        if isinstance(request, Introduce):
            return self._introduced(request)
        if isinstance(request, Describe):
            return self.describe(request)
        return self.answer(request)

    def answer(self, request: Keyed) -> Reply:
        """The reply to a request about one configuration. Never raises for what a client sent."""
        hosting = self._hosted.get(request.configuration)
        if hosting is None:
            return Refused(request.call, Reason.UNKNOWN_CONFIGURATION, "introduce it")
        try:
            return hosting.answers[type(request)](request)
        except ConflictingSuccessor as error:
            return refusal(request, Reason.CONFLICTING_SUCCESSOR, str(error))
        except BadElement as error:
            return refusal(request, Reason.BAD_ELEMENT, str(error))
        except BadInput as error:
            return refusal(request, Reason.BAD_REQUEST, str(error))

    def introduce(self, configuration: Configuration) -> tuple[Reason, str] | None:
        """Keep state for ``configuration``, or say why not."""
        position = next((position for position, server in enumerate(configuration.servers) if server.id == self.server), None)
        if configuration.index < 0 or position is None:
            return Reason.NOT_A_MEMBER, f"{self.server} is not in {configuration.describe()}"
        place = (configuration.domain, configuration.index)
        if configuration.cluster_id != self._cluster or self._places.get(place, configuration.id) != configuration.id:
            return Reason.OTHER_CLUSTER, f"index {place[1]} of domain {place[0]!r} is another configuration here: is this the right cluster file?"
        if configuration.servers[position].identity != self.identity:
            return Reason.IDENTITY, f"{self.server} was restarted and lost its memory; reconfigure to take it in anew"
        if configuration.id not in self._hosted:
            self._hosted[configuration.id] = self._hosting(configuration, position)
        self._places[place] = configuration.id
        return None

    @property
    def hosted(self) -> Mapping[ConfigurationId, Hosting]:
        """What it keeps, by configuration; for looking at."""
        return self._hosted

    def describe(self, request: Describe) -> Description:
        hosted = () if request.brief else tuple(hosting.describe() for hosting in self._hosted.values())
        return Description(request.call, self.server, self.identity, self._cluster, VERSION, 0.0, 0, hosted)

    def _introduced(self, request: Introduce) -> Reply | None:
        try:
            request.configuration.check_bounds()
        except BadInput as error:
            return refusal(request, Reason.BAD_REQUEST, str(error))
        refused = self.introduce(request.configuration)
        return None if refused is None else refusal(request, *refused)


def refusal(request: Message, reason: Reason, detail: str) -> Refused:
    """Of ``detail``, which may repeat what was asked, no more than a person reads."""
    return Refused(request.call, reason, detail[:DETAIL_CHARACTERS_MAX])
