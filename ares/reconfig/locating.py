"""The search for a domain among a few servers, possible hosts of the domain (rule R21).

The result is a finalized configuration, where a traversal begins as from any other.
"""

from collections.abc import Sequence

from ares.engine.effects import Answers, Gather, Operation
from ares.model.configuration import Configuration, Server
from ares.model.errors import NotAuthorized, Unavailable
from ares.model.identity import NO_DOMAIN, DomainName
from ares.model.messages import Located, Where

LOCATE_S = 1.0
"""Seconds to wait for servers while none answers."""

OTHERS_S = 0.1
"""Seconds to wait for more answers after a server answered without knowing the domain."""


def locate(domain: DomainName, servers: Sequence[Server]) -> Operation[Configuration | None]:
    """Return the newest finalized configuration of ``domain`` named soon by ``servers``, or None.

    ``servers``: 1 to SERVERS_MAX. Servers of a release without this question count as silent.
    """
    roster = Configuration("abd", tuple(servers)).at(NO_DOMAIN, 0)

    def named(answers: Answers) -> bool:
        return any(reply.configuration is not None for reply in answers.values())

    try:
        answers = yield Gather(
            roster,
            Where,
            "where",
            needed=1,
            settled=named,
            patience_s=lambda *_: OTHERS_S,
            give_up_s=LOCATE_S,
            arguments=(domain,),
            reply=Located,
        )
    except (Unavailable, NotAuthorized):
        return None
    found = [reply.configuration for reply in answers.values() if reply.configuration is not None]
    return max(found, key=lambda configuration: configuration.index, default=None)
