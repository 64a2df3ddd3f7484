"""What a group commit changes, and which replies show it: those wait until it is durable (ares/server/durable_host.py)."""

from collections.abc import Hashable
from typing import assert_never

from ares.identity import ConfigurationId, ObjectName
from ares.messages import (
    AnyMessage,
    CollectConfig,
    Describe,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PutData,
    ReadConfig,
    Request,
    WriteConfig,
)
from ares.server.facts import Fact, Pointed


class Unsynced:
    """One group commit: what it changes, and the replies that wait for it. ``appended``: there is something to commit. ``bytes``: of its facts."""

    def __init__(self) -> None:
        self.objects: set[tuple[ConfigurationId, ObjectName]] = set()
        self.listings: set[ConfigurationId] = set()
        self.pointers: set[ConfigurationId] = set()
        self.replies: dict[Hashable, list[AnyMessage]] = {}
        self.appended = False
        self.bytes = 0

    def note(self, fact: Fact, bytes: int) -> None:
        """``fact`` is committed with this."""
        self.appended = True
        self.bytes += bytes
        if isinstance(fact, Pointed):
            self.pointers.add(fact.configuration.id)
        else:
            self.objects.add((fact.configuration, fact.object))
            self.listings.add(fact.configuration)

    def shown_by(self, request: Request) -> bool:
        """Whether a reply to ``request`` may show something of this. Every reply about a configuration shows its pointer."""
        match request:
            case GetTag() | GetData() | PutData():
                return (request.configuration, request.object) in self.objects or request.configuration in self.pointers
            case ListObjects():
                return request.configuration in self.listings or request.configuration in self.pointers
            case ReadConfig() | WriteConfig() | CollectConfig():
                return request.configuration in self.pointers
            case Describe():
                return self.appended
            case Introduce():
                return request.configuration.id in self.pointers
            case _:
                assert_never(request)
