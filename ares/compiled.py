"""The door to the compiled core (core/), which runs small reads and writes without Python.

The core also has a table of the objects of a server, and finds the cuts of files by Rabin
fingerprints. Python and the core know of each other only the contents of this module: the common
constants (CONSTANTS), the Python objects that the core calls (GIVEN), the attributes that the core
reads and sets (SEEN), and the core's entries (:class:`ServerCore`, :func:`replica_parts`,
:class:`SmallObjects`, :class:`ares.engine.port.FastPath` and :func:`rabin_search`). Without the
core, or with ``ARES_PURE=1`` in the environment, Python does all the work; the Python path is
complete and the reference. See docs/protocol.md, The compiled core.
"""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from msgspec.msgpack import encode

from ares.dap.coding import FRAGMENT_HEADER_BYTES, ReedSolomon
from ares.dap.primitives import DataAccess, DataResult
from ares.dap.version_list import VersionList
from ares.engine.effects import Operation
from ares.engine.jobs import ROUND_RESEND_S, SEND_BYTES_PER_S_EXPECTED
from ares.engine.port import FastPath, NoFastPath
from ares.engine.readiness import Readiness, ServerOrder
from ares.engine.room import OPERATIONS_MAX
from ares.engine.session import USUAL_ROUNDS, Session
from ares.fragment.rabin import RABIN_POLYNOMIAL, RABIN_WINDOW_BYTES, RabinEnds, rabin_ends
from ares.model.codec import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    DETACHED_BYTES_MIN,
    HEADER_BYTES_MAX,
    WIRE_VERSION,
    decode_own,
    decode_replies,
)
from ares.model.configuration import (
    BACKEND_DEFAULT,
    DELTA_MAX,
    SERVERS_MAX,
    Configuration,
    Successor,
)
from ares.model.identity import (
    KEY_BYTES_MAX,
    OF_WRITERS,
    RESERVED,
    VALUE_BYTES_DEFAULT,
    VALUE_BYTES_MAX,
    ConfigurationId,
    ObjectName,
)
from ares.model.messages import (
    DELETED_LENGTH,
    LEFT_LENGTH,
    Ack,
    DataReply,
    Element,
    GetData,
    GetTag,
    ListedObject,
    PutData,
    TagReply,
)
from ares.model.tag import NUMBER_FLOOR, NUMBER_LAST, Tag, TagSource, TakenNumbers
from ares.model.value import TOMBSTONE
from ares.model.work import REQUEST_WORK, TURN_WORK
from ares.platform.environment import PURE_VARIABLE
from ares.reconfig.view import ConfigurationSequence, View
from ares.registers.operations import read, write
from ares.replica.configuration_state import Clock, ConfigurationState, no_clock
from ares.replica.facts import (
    CHARACTER_BYTES_MAX,
    PART_BYTES_MAX,
    PUT_BYTES,
    PUT_BYTES_MAX,
    TRIMMED_BYTES,
    ConfigurationUsage,
    TagsTrimmed,
)
from ares.replica.group_commit import GroupCommit
from ares.replica.port import PAGE_CHARACTERS_MAX, PutEffect
from ares.replica.replica import ReplicaParts

CRATE = "0.1.2"
"""Number of the crate that this state of ares works with, as in core/Cargo.toml."""

_MANIFEST = Path(__file__).parents[1] / "core/Cargo.toml"


CONSTANTS: dict[str, Any] = {
    "RELEASE": CRATE,
    "ROUND_RESEND_S": ROUND_RESEND_S,
    "SEND_BYTES_PER_S_EXPECTED": SEND_BYTES_PER_S_EXPECTED,
    "USUAL_ROUNDS": USUAL_ROUNDS,
    "OPERATIONS_MAX": OPERATIONS_MAX,
    "TURN_MESSAGES_MAX": TURN_WORK // REQUEST_WORK,
    "WIRE_VERSION": WIRE_VERSION,
    "BATCH_BYTES_MAX": BATCH_BYTES_MAX,
    "BATCH_MESSAGES_MAX": BATCH_MESSAGES_MAX,
    "DETACHED_BYTES_MIN": DETACHED_BYTES_MIN,
    "HEADER_BYTES_MAX": HEADER_BYTES_MAX,
    "GET_TAG": GetTag.__struct_config__.tag,
    "GET_DATA": GetData.__struct_config__.tag,
    "PUT_DATA": PutData.__struct_config__.tag,
    "TAG_REPLY": TagReply.__struct_config__.tag,
    "DATA_REPLY": DataReply.__struct_config__.tag,
    "ACK": Ack.__struct_config__.tag,
    "TAGS_TRIMMED": TagsTrimmed.__struct_config__.tag,
    "SERVERS_MAX": SERVERS_MAX,
    "DELTA_MAX": DELTA_MAX,
    "BACKEND_DEFAULT": BACKEND_DEFAULT,
    "FRAGMENT_HEADER_BYTES": FRAGMENT_HEADER_BYTES,
    "RESERVED": RESERVED,
    "OF_WRITERS": list(OF_WRITERS),
    "KEY_BYTES_MAX": KEY_BYTES_MAX,
    "VALUE_BYTES_MAX": VALUE_BYTES_MAX,
    "DELETED_LENGTH": DELETED_LENGTH,
    "LEFT_LENGTH": LEFT_LENGTH,
    "NUMBER_FLOOR": NUMBER_FLOOR,
    "NUMBER_LAST": NUMBER_LAST,
    "PAGE_CHARACTERS_MAX": PAGE_CHARACTERS_MAX,
    "PUT_NONE": PutEffect.NONE.value,
    "PUT_TRIMMED": PutEffect.TRIMMED.value,
    "PUT_STORED": PutEffect.STORED.value,
    "PUT_BYTES": PUT_BYTES,
    "PUT_BYTES_MAX": PUT_BYTES_MAX,
    "PART_BYTES_MAX": PART_BYTES_MAX,
    "CHARACTER_BYTES_MAX": CHARACTER_BYTES_MAX,
    "TRIMMED_BYTES": TRIMMED_BYTES,
    "RABIN_POLYNOMIAL": RABIN_POLYNOMIAL,
    "RABIN_WINDOW_BYTES": RABIN_WINDOW_BYTES,
}
"""Constants of core/src/constants.rs, with Python's values; other values refuse the core."""

GIVEN = (
    *(Element, DataResult, TOMBSTONE, Tag, VersionList, ListedObject),
    *(decode_own, decode_replies, encode),
)
"""Python objects that the core takes from this module, by name."""

SEEN: dict[type, tuple[str, ...]] = {
    Session: (
        *("jobs", "last_call", "met", "now", "outbox", "queues", "readiness", "rounds"),
        *("take", "take_over", "usual_round_s"),
    ),
    Readiness: ("heard", "order"),
    ServerOrder: ("first", "positions", "spared"),
    View: ("client", "dap", "domain", "sequence", "tags"),
    ConfigurationSequence: ("last_finalized", "last_known", "pending"),
    TagSource: ("begin", "end"),
    TakenNumbers: ("completed", "number"),
    Configuration: ("backend", "dap", "id", "k", "quorum_size", "server_ids"),
    DataAccess: ("coding", "holding_value", "large"),
    ReedSolomon: ("decode", "encode", "more_bytes"),
    ConfigurationState: (
        *("capacity", "carried", "collected", "configuration", "element_index", "objects"),
        *("order_known", "successor"),
    ),
    Successor: ("finalized",),
    ConfigurationUsage: ("add",),
    GroupCommit: ("objects", "pointers"),
    VersionList: ("entries", "trimmed", "trimmed_place"),
    Element: ("checksum", "index", "length", "parts", "size"),
    Tag: ("number", "writer"),
}
"""Attributes that the core reads, sets or calls, by class; all are public."""


class ServedTurn(Protocol):
    """The core's work on the bytes of a client that arrived together."""

    reply: bytes | None
    """Batch of the replies due at once."""

    tags: int
    """Number of requests for tags; likewise ``datas`` and ``puts``."""

    datas: int
    puts: int
    received_bytes: int
    reads: int
    """Number of reads answered at once, and ``writes`` the number of writes."""

    writes: int
    facts: tuple[int, bytes] | None
    """Number and bytes of the facts for the journal, concatenated, of at most ``fact_bytes``."""

    fact_bytes: int
    waiting: Sequence[tuple[GroupCommit, bytes, int, int, int]]
    """Commits, each with its waiting replies, their rows, and their reads and writes."""

    asked: Sequence[tuple[ConfigurationId, int]]
    """Number of requests for each configuration."""


class ServerCore(Protocol):
    """The server of small reads and writes."""

    def serve(
        self,
        came: Any,
        writes: bool,
        gathering: GroupCommit | None = None,
        syncing: GroupCommit | None = None,
        rows_max: int = 0,
    ) -> ServedTurn | None:
        """Serve the bytes of a connection, or batches of frames; None: no request was served.

        ``writes``: the client may write. ``gathering``, ``syncing``: commits on which replies may
        wait, in at most ``rows_max`` rows.
        """


class SmallObjects(Protocol):
    """The entry of small reads and writes of a domain.

    ``read`` and ``write`` return None for an operation which the core does not run: the caller
    starts the operation in the session. Otherwise they return ``done``, or a new future, as the
    name of the operation.
    """

    def read(self, key: str, done: Any, now: float, timeout_s: float, /) -> Any: ...
    def write(self, key: str, value: Any, done: Any, now: float, timeout_s: float, /) -> Any: ...


class ClientCore(FastPath, Protocol):
    """The fast path of a session in the core."""

    def objects(
        self,
        session: Session,
        view: View,
        make: Callable[[ObjectName, bytes | None], Operation[Any]],
        shell: "Shell | None",
        settle: Callable[[Any, Any, BaseException | None], None] | None,
        /,
    ) -> SmallObjects:
        """Return the entry for the domain of ``view``."""


class Shell(Protocol):
    """The session's surroundings on an event loop, which take results as futures."""

    @property
    def create_future(self) -> Callable[[], Any]: ...

    def schedule(self) -> None:
        """Post the session's messages soon."""


def _asked_for_python() -> bool:
    return os.environ.get(PURE_VARIABLE, "0") not in ("", "0")


def _loaded() -> tuple[Any, str]:
    """Return the module of the core, or None and the reason, if the core is refused."""
    if _asked_for_python():
        return None, ""
    try:
        core = import_module("ares._core")
    except ImportError:
        return None, ""
    theirs: Mapping[str, Any] = getattr(core, "CONSTANTS", {})
    for name in {**CONSTANTS, **theirs}:
        if theirs.get(name) != CONSTANTS.get(name):
            given, wanted = theirs.get(name), CONSTANTS.get(name)
            return None, f"the compiled one is refused, because its {name} is {given}, not {wanted}"
    return core, ""


CORE, _REFUSED = _loaded()
"""The module ``ares._core``; None: Python does all the work."""

PYTHON_CORE, RUST_CORE = "python", "rust"

CORE_NAME = PYTHON_CORE if CORE is None else RUST_CORE
"""Name for people, shown by ``ares-cli --version``, ``status`` and ``/metrics``."""


def advice() -> str:
    """Return a line of advice where the slower core runs without having been asked for."""
    if CORE is not None or _asked_for_python():
        return ""
    how = (
        f"`make core` in {_MANIFEST.parents[1]} builds the compiled one, or says why it cannot"
        if _MANIFEST.exists()
        else "install ares again where Rust 1.85 or newer is (`cargo`), or from a wheel that has "
        "the compiled one"
    )
    reasons = "; ".join(filter(None, [_REFUSED, how]))
    return f"the slower core runs here, which is Python's: {reasons}"


def server_core(
    hosted: Mapping[ConfigurationId, ConfigurationState],
    at_hand: Callable[[int], int | None] | None = None,
) -> ServerCore | None:
    """Return the core of a server that hosts ``hosted``, or None.

    ``at_hand``: for a server with a journal, :meth:`ares.store.port.Journal.at_hand`.
    """
    core: ServerCore | None = None if CORE is None else CORE.ServerCore(hosted, at_hand)
    return core


def replica_parts(clock: Clock = no_clock, value_bytes: int = VALUE_BYTES_DEFAULT) -> ReplicaParts:
    """Return the parts of a replica with the core's table of objects, or with Python's."""
    epoch = partial(secrets.randbits, 63)
    if CORE is None:
        return ReplicaParts(clock, value_bytes, new_epoch=epoch)
    return ReplicaParts(
        clock, value_bytes, CORE.ObjectTable, CORE.replay, CORE.replay_run, new_epoch=epoch
    )


def fast_path() -> FastPath | None:
    """Return the core of a session, or None."""
    core: ClientCore | None = None if CORE is None else CORE.ClientCore()
    return core


def rabin_search() -> RabinEnds:
    """Return the search for cuts by Rabin fingerprints: the core's, or Python's."""
    found: RabinEnds = rabin_ends if CORE is None else CORE.rabin_ends
    return found


def small_objects(session: Session, view: View, shell: Shell | None = None) -> SmallObjects | None:
    """Return the entry of small reads and writes in ``view``.

    None without a core, with other switches of the client, and in a write-once domain, where the
    core would write.
    """
    core: Any = session.fast_path
    is_usual = view.switches.piggyback and view.switches.fast_read
    if isinstance(core, NoFastPath) or not is_usual or view.sequence.last_known.write_once:
        return None
    view.sequence.changing = session.take_over_all
    found: SmallObjects = core.objects(
        session,
        view,
        lambda name, value: read(view, name) if value is None else write(view, name, value),
        shell,
        None if shell is None else _settle,
    )
    return found


def _settle(future: Any, result: Any, error: BaseException | None) -> None:
    """Settle the future of an operation that ended in the session; a read gives the value."""
    if future.done():
        return
    if error is None:
        future.set_result(result.value if isinstance(result, DataResult) else result)
    else:
        future.set_exception(error)
