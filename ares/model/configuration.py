"""Configurations, their quorums, and pointers to successors (ARES II section 3, "Configurations").

A configuration names its servers, the data access primitives spoken to them and their parameters.
Once decided, a configuration has a place, an index in the configuration sequence of a domain, and
an id: a digest of place and content.

Quorums, for n servers of which k elements rebuild a value (ABD: k = 1, every element is the whole
value): any ceil((n+k)/2). Two quorums share at least 2*ceil((n+k)/2) - n >= k servers, hence a
completed put-data is decodable from the elements of every later quorum. For ABD the size is
floor(n/2)+1, the majority. n - quorum = floor((n-k)/2) servers may crash: *less* than the n - k
parity elements.
"""

import enum
import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from ares.model.errors import AresError, BadInput, ConfigurationRefused
from ares.model.identity import (
    CONFIGURATION_ID_BYTES,
    DEFAULT_DOMAIN,
    DOMAIN_BYTES_MAX,
    ConfigurationId,
    DomainName,
    ServerId,
    is_domain_name,
)
from ares.model.numbers import POSITION_MAX, Position, is_whole, shown_number

Algorithm = Literal["abd", "ec", "chain"]
"""The form of a configuration's data.

Objects replicated (abd) or erasure-coded (ec), or a segment of a log (chain, docs/log.md).
"""

SERVERS_MAX = 32
"""liberasurecode's limit on data plus parity fragments."""

DELTA_DEFAULT = 8
DELTA_MAX = 1000
CONFIGURATION_BYTES_MAX = 32 * 1024
"""Bytes of an encoded configuration; 32 servers with long names, addresses and keys take half of
that.
"""

BACKEND_CHARACTERS_MAX = 64
BACKEND_DEFAULT = "isa_l_rs_cauchy"
BACKENDS = (
    BACKEND_DEFAULT,
    "isa_l_rs_vand_inv",
    "liberasurecode_rs_vand",
    "jerasure_rs_vand",
    "jerasure_rs_cauchy",
)
"""Reed-Solomon codes: any k elements of n rebuild the value.

Flat XOR and LRC codes of the same library lack this property.
"""

WRITE_ONCE = "write-once"
"""Mark of a configuration in which each name is written once (rule R25).

The mark stands before the name of the erasure code, with a space, or alone: earlier releases refuse
a configuration with either.
"""

CHAIN_RULE = "side-by-side"
"""Name of the rule by which the servers of a chain forward at once (docs/log.md, Terms).

The name is in the place of a code's name, where earlier releases refuse a chain with any name.
"""

UNPLACED = -1

_bounded = Meta(max_length=CONFIGURATION_BYTES_MAX)
"""Bound of each part of a configuration while decoding: no part is larger than the whole."""

_NAMED_CHARACTERS_MAX = 300
"""Characters of a peer's names quoted in an error."""


class Server(Struct, frozen=True, array_like=True):
    """A member of a configuration: name, address and the random identity of its store (hex).

    ``address``: ``host:port``, or ``host:port/KEY`` for a server recognised by its public key (64
    hex characters).
    """

    id: Annotated[ServerId, _bounded]
    address: Annotated[str, _bounded] = ""
    identity: Annotated[str, _bounded] = ""


class Configuration(Struct, frozen=True, array_like=True, dict=True):
    """Servers, primitives and parameters, made by :meth:`abd`, :meth:`ec` or :meth:`chain`.

    ``k`` data elements of ``n`` rebuild a value; ``delta`` writes may run beside a read (EC-DAP
    keeps delta + 1 elements of an object); ``backend`` names the erasure code, behind the mark
    WRITE_ONCE where names are written once, or the rule of a chain: CHAIN_RULE, or empty for the
    rule of earlier releases. ``domain``,
    ``index`` and ``cluster`` are the place, set by the proposal: ``cluster`` is the id of c0 (empty
    in c0 itself), hence no decision for another cluster is ever taken for a decision of this
    cluster. ``certificate`` is a signature of the decision, where clusters ask for certificates;
    the certificate is part neither of the content nor of the id. ``start`` is the position of a
    chain's first entry; the servers of a chain are listed in the chain's order, head first.

    Raises :class:`BadInput` for impossible parameters.
    """

    dap: Algorithm
    servers: Annotated[tuple[Server, ...], Meta(max_length=SERVERS_MAX)]
    k: Annotated[int, Meta(ge=1, le=SERVERS_MAX - 1)] = 1
    delta: Annotated[int, Meta(ge=0, le=DELTA_MAX)] = 0
    backend: Annotated[str, Meta(max_length=BACKEND_CHARACTERS_MAX)] = ""
    domain: Annotated[DomainName, Meta(max_length=DOMAIN_BYTES_MAX)] = DEFAULT_DOMAIN
    index: Annotated[int, Meta(ge=UNPLACED, le=POSITION_MAX)] = UNPLACED
    cluster: Annotated[bytes, _bounded] = b""
    certificate: Annotated[bytes, _bounded] = b""
    start: Position = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.servers) <= SERVERS_MAX:
            raise BadInput(
                f"a configuration needs 1 to {SERVERS_MAX} servers, not {len(self.servers)}"
            )
        names = [server.id for server in self.servers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BadInput(
                f"server {', '.join(twice)[:_NAMED_CHARACTERS_MAX]} is named twice in one "
                "configuration"
            )
        if self.dap == "abd" and (self.k, self.delta, self.code) != (1, 0, ""):
            raise BadInput("ABD replicates whole values: it takes no k, delta or backend")
        if self.dap == "chain" and (
            (self.k, self.delta) != (1, 0) or self.backend not in ("", CHAIN_RULE)
        ):
            raise BadInput("a chain replicates whole entries: it takes no k, delta or backend")
        if not 0 <= self.start <= (POSITION_MAX if self.dap == "chain" else 0):
            raise BadInput(
                f"a chain starts at a position from 0 to {POSITION_MAX}, and only a chain has "
                f"one: not {self.start}"
            )
        if self.dap == "ec" and not 1 <= self.k < len(names):
            raise BadInput(
                f"erasure coding over {len(names)} servers needs 1 <= k < {len(names)}, not k = "
                f"{self.k}"
            )
        if self.dap == "ec" and not 1 <= self.delta <= DELTA_MAX:
            raise BadInput(
                f"delta, the number of writers at once, must be from 1 to {DELTA_MAX}, not "
                f"{self.delta}"
            )
        if self.dap == "ec" and self.code == "isa_l_rs_vand":
            raise BadInput(
                "backend isa_l_rs_vand is refused: at k=6, m=5 it cannot decode 2 of the 462 "
                "patterns; use isa_l_rs_cauchy"
            )
        if self.dap == "ec" and self.code not in BACKENDS:
            named = self.backend[:BACKEND_CHARACTERS_MAX]
            raise BadInput(
                f"backend {named!r} is not one of {', '.join(BACKENDS)}: with other codes k "
                "elements may not rebuild the value"
            )

    @staticmethod
    def abd(
        servers: Iterable[str | Server], *, write_once: bool = False, allow_no_faults: bool = False
    ) -> "Configuration":
        """Return a replicated configuration: every server holds the whole value.

        ``write_once``: each name is written at most once, and may be dropped (rule R25).
        """
        return Configuration(
            "abd", _members(servers), backend=WRITE_ONCE if write_once else ""
        ).checked_for_faults(allow_no_faults)

    @staticmethod
    def ec(
        servers: Iterable[str | Server],
        k: int,
        delta: int = DELTA_DEFAULT,
        backend: str = BACKEND_DEFAULT,
        *,
        write_once: bool = False,
        allow_no_faults: bool = False,
    ) -> "Configuration":
        """Return an erasure-coded configuration.

        Every server holds an element of 1/k of the value; any k elements rebuild the value.
        ``backend``: the name of the code. ``write_once``: as of :meth:`abd`.
        """
        for name, count in (("k", k), ("delta", delta)):
            if not is_whole(count):
                raise BadInput(f"{name} is a whole number, not {shown_number(count)}")
        if write_once:
            backend = f"{WRITE_ONCE} {backend}"
        return Configuration("ec", _members(servers), k, delta, backend).checked_for_faults(
            allow_no_faults
        )

    @staticmethod
    def chain(servers: Iterable[str | Server], *, allow_no_faults: bool = False) -> "Configuration":
        """Return a segment of a log (docs/log.md).

        Every server holds its entries; the first server is the head, the last the tail.
        """
        return Configuration("chain", _members(servers), backend=CHAIN_RULE).checked_for_faults(
            allow_no_faults
        )

    def checked_for_faults(self, allow_no_faults: bool) -> "Configuration":
        """Return this configuration.

        Raises :class:`ConfigurationRefused` when the configuration survives no crash and
        ``allow_no_faults`` is False.
        """
        if self.crashes_survived == 0 and not allow_no_faults:
            smaller = " or a smaller k" if self.dap == "ec" else ""
            raise ConfigurationRefused(
                f"{self.describe()}: one crash stops it. Use more servers{smaller}, or say "
                "--allow-no-faults"
            )
        return self

    def check_bounds(self) -> None:
        """Check the bounds of a configuration from a peer.

        Raises :class:`BadInput` if the configuration is too large to be kept, or its domain's name
        is impossible.
        """
        if not is_domain_name(self.domain):
            raise BadInput(
                "a configuration of a domain that has no name, or whose name is not printable "
                f"text of at most {DOMAIN_BYTES_MAX} bytes"
            )
        if len(msgspec.msgpack.encode(self)) > CONFIGURATION_BYTES_MAX:
            raise BadInput(f"a configuration of more than {CONFIGURATION_BYTES_MAX} bytes")

    @cached_property
    def write_once(self) -> bool:
        """Return whether each name is written at most once, and may be dropped (rule R25)."""
        return self.dap != "chain" and self.backend.partition(" ")[0] == WRITE_ONCE

    @property
    def code(self) -> str:
        """Return the name of the erasure code, without the mark WRITE_ONCE; empty for ABD."""
        if not self.write_once:
            return self.backend
        code = self.backend.partition(" ")[2]
        return code or (BACKEND_DEFAULT if self.dap == "ec" else "")

    @cached_property
    def n(self) -> int:
        return len(self.servers)

    @cached_property
    def quorum_size(self) -> int:
        """Return ceil((n+k)/2), the size of a quorum; see the module's docstring."""
        return (self.n + self.k + 1) // 2

    @property
    def crashes_survived(self) -> int:
        return self.n - self.quorum_size

    @cached_property
    def server_ids(self) -> tuple[ServerId, ...]:
        return tuple(server.id for server in self.servers)

    @cached_property
    def id(self) -> ConfigurationId:
        """Return the digest of place and content, 16 bytes."""
        assert self.index != UNPLACED, "only a placed configuration has an id"
        content: tuple[object, ...] = (
            self.dap,
            self.servers,
            self.k,
            self.delta,
            self.backend,
            self.domain,
            self.index,
            self.cluster,
        )
        if self.dap == "chain":
            content += (self.start,)
        return ConfigurationId(
            hashlib.blake2b(
                msgspec.msgpack.encode(content), digest_size=CONFIGURATION_ID_BYTES
            ).digest()
        )

    @property
    def cluster_id(self) -> bytes:
        """Return the id of c0 of the cluster which this configuration belongs to."""
        return self.cluster or self.id

    def at(self, domain: DomainName, index: int, cluster: bytes = b"") -> "Configuration":
        """Return this content, uncertified, at a place of a domain's sequence in a cluster.

        See Alg. 5:18, d.ID = lambda + 1.
        """
        return msgspec.structs.replace(
            self, domain=domain, index=index, cluster=cluster, certificate=b""
        )

    def resolved(self, book: Mapping[ServerId, Server]) -> "Configuration":
        """Return this configuration with address and identity of every server from ``book``.

        Raises :class:`BadInput` with the names missing from ``book``.
        """
        unknown = [
            server.id for server in self.servers if not server.address and server.id not in book
        ]
        if unknown:
            raise BadInput(
                f"unknown server {', '.join(unknown)}; known: {', '.join(sorted(book)) or 'none'}"
            )
        return msgspec.structs.replace(
            self,
            servers=tuple(server if server.address else book[server.id] for server in self.servers),
        )

    def marked(self, write_once: bool) -> "Configuration":
        """Return this configuration of objects with or without the mark WRITE_ONCE."""
        mark = WRITE_ONCE if write_once else ""
        return msgspec.structs.replace(self, backend=f"{mark} {self.code}".strip())

    def same_content(self, other: "Configuration") -> bool:
        """Return whether the two configurations differ in their place at most."""
        return self.at(DEFAULT_DOMAIN, 0) == other.at(DEFAULT_DOMAIN, 0)

    def describe(self) -> str:
        """Describe the configuration in a line for a person.

        Example: ``EC n=5 k=3 delta=8 on s0,s1,s2,s3,s4; quorum 4, survives 1 crash``.
        """
        shape = (
            f"EC n={self.n} k={self.k} delta={self.delta}"
            if self.dap == "ec"
            else f"ABD n={self.n}"
        )
        if self.dap == "chain":
            shape = f"chain n={self.n}" + (
                "" if self.index == UNPLACED else f" from position {self.start}"
            )
        if self.write_once:
            shape += f" {WRITE_ONCE}"
        crashes = f"{self.crashes_survived} crash" + ("" if self.crashes_survived == 1 else "es")
        return (
            f"{shape} on {','.join(self.server_ids)}; quorum {self.quorum_size}, survives {crashes}"
        )


def _members(servers: Iterable[str | Server]) -> tuple[Server, ...]:
    if isinstance(servers, str) or not isinstance(servers, Iterable):
        raise BadInput(f"servers are a list of their ids, not {servers!r}")
    listed = tuple(servers)
    wrong = [server for server in listed if not isinstance(server, str | Server)]
    if wrong:
        raise BadInput(f"a server is named by its id, which is text (str), not by {wrong[0]!r}")
    return tuple(
        server if isinstance(server, Server) else Server(ServerId(server)) for server in listed
    )


class Status(enum.IntEnum):
    """The status of a successor (ARES II section 3).

    P: data may still be on its way. F: the configuration holds all that completed before it.
    """

    PENDING = 0
    FINALIZED = 1


class Successor(Struct, frozen=True, array_like=True):
    """The configuration after another, with its status (nextC).

    A server's knowledge of a successor only moves forwards (:func:`advance`).
    """

    configuration: Configuration
    status: Status

    @property
    def finalized(self) -> bool:
        return self.status is Status.FINALIZED


class ConflictingSuccessor(AresError):
    """Two different configurations for the same index of the same domain."""


def advance(own: Configuration, current: Successor | None, incoming: Successor) -> Successor:
    """Return the pointer of a server of ``own`` after ``incoming``, with rule R2.

    The pointer is nextC, moved by put-config (Alg. 4:31-35) and by gc-config (Alg. 4:36-38).
    none -> (c', P) -> (c', F) -> (c'', F) with a higher index; never backwards. The published
    server replaces a pending successor by any other. A different configuration *at the same index*
    would mean two consensus decisions for an index; refusing the second keeps quorums safe even if
    the consensus service misbehaves.

    Raises :class:`ConflictingSuccessor` (R2, or a successor that cannot follow ``own`` at all).
    """
    new = incoming.configuration
    if new.index < 0 or new.cluster_id != own.cluster_id:
        raise ConflictingSuccessor(
            f"index {new.index} of {new.domain!r} was decided for another cluster"
        )
    if (
        new.domain != own.domain
        or new.index <= own.index
        or (not incoming.finalized and new.index != own.index + 1)
    ):
        raise ConflictingSuccessor(
            f"index {new.index} of {new.domain!r} cannot follow index {own.index} of {own.domain!r}"
        )
    if new.write_once != own.write_once:
        raise ConflictingSuccessor(
            f"index {new.index} of {new.domain!r} is {_kind(new)}, and index {own.index} is not: a "
            "domain stays as it began"
        )
    if current is None:
        return incoming
    old = current.configuration
    if new.index == old.index:
        if new != old and new.id != old.id:
            # every request of a move brings it, and a digest takes longer than comparing
            raise ConflictingSuccessor(
                f"index {new.index} of {new.domain!r} is {old.id.hex()} here, not {new.id.hex()}"
            )
        return max(current, incoming, key=lambda successor: successor.status)
    return incoming if incoming.finalized and new.index > old.index else current


def _kind(configuration: Configuration) -> str:
    return WRITE_ONCE if configuration.write_once else "of objects that may be written again"


def latest(successors: Iterable[Successor | None]) -> Successor | None:
    """Return the finalized successor of highest index, else a pending one, else None (Alg. 2:4-12).

    This is the choice of find-next-config.
    """
    known = (successor for successor in successors if successor is not None)
    return max(
        known, key=lambda successor: (successor.status, successor.configuration.index), default=None
    )


class NamesSuccessor(Protocol):
    """A reply with a successor, if its server knows one."""

    @property
    def successor(self) -> Successor | None: ...


def latest_named(replies: Collection[NamesSuccessor]) -> Successor | None:
    """Return ``latest`` of the successors named by these replies; nearly always None."""
    for reply in replies:
        if reply.successor is not None:
            return latest([reply.successor for reply in replies])
    return None
