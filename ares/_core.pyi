"""The compiled core (core/src), where there is one: ares/machine/compiled.py."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from ares.model.identity import ConfigurationId
from ares.net.port import Came
from ares.replica.facts import TagsTrimmed
from ares.replica.hosting import Hosting
from ares.replica.unsynced import Unsynced

RELEASE: str

class Served:
    """What became of what came from one client at a time. ``reply``: the batch that is due at once.

    ``tags``, ``datas``, ``puts``: how many requests of each kind there were, and ``asked`` about each configuration. ``reads``, ``writes``: how
    many were answered at once. ``facts``: for the journal, of at most ``fact_bytes``. ``waiting``: commits, the replies that wait for each, of how
    many rows, and how many of them are tags or values, and acknowledgements.
    """

    reply: bytes | None
    tags: int
    datas: int
    puts: int
    received_bytes: int
    reads: int
    writes: int
    facts: Sequence[Raw | TagsTrimmed] | None
    fact_bytes: int
    waiting: Sequence[tuple[Unsynced, Sequence[Raw], int, int, int]] | None
    asked: Sequence[tuple[ConfigurationId, int]]

class Server:
    """Answers small reads and writes of what is in ``hosted``, and leaves everything unusual to the Python path.

    ``at_hand``: of a server with a journal, :meth:`ares.store.port.Journal.at_hand`.
    """

    def __init__(self, hosted: Mapping[ConfigurationId, Hosting], at_hand: Any = None) -> None: ...
    def serve(
        self, came: Came, writes: bool, gathering: Unsynced | None = None, syncing: Unsynced | None = None, rows_max: int = 0
    ) -> Served | None: ...
