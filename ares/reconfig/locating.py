"""Where a domain is, asked of a few servers that may host it (rule R21): a finalized configuration, where a traversal begins as from any other."""

from collections.abc import Sequence

from ares.model.configuration import Configuration, Server
from ares.model.errors import NotAuthorized, Unavailable
from ares.model.identity import NO_DOMAIN, DomainName
from ares.model.messages import Located, Where
from ares.operation.effects import Answers, Gather, Operation

LOCATE_S = 1.0
"""How long servers are waited for of which none answers."""

OTHERS_S = 0.1
"""How long others are waited for, once one said that it does not know the domain."""


def locate(domain: DomainName, servers: Sequence[Server]) -> Operation[Configuration | None]:
    """The newest finalized configuration of ``domain`` that those of ``servers`` name that answer soon; None if they name none.

    ``servers``: 1 to SERVERS_MAX. Servers of a release that does not know the question count as silent.
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
