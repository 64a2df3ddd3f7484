"""Distinct id types: the type checker notices an object's name in place of a server's."""

from typing import NewType

from ares.model.numbers import Word

ServerId = NewType("ServerId", str)
"""A server's name in the cluster file, for example ``s0``."""

ClientId = NewType("ClientId", Word)
"""64 bits, random unless configured; the writer half of a tag (paper: wid)."""

ObjectName = NewType("ObjectName", str)
"""A key: non-empty UTF-8 of at most 1024 bytes."""

DomainName = NewType("DomainName", str)
"""A set of objects which share a configuration sequence (paper: D)."""

ConfigurationId = NewType("ConfigurationId", bytes)
CONFIGURATION_ID_BYTES = 16
"""Digest of a configuration's domain, index and content: two different configurations never share
an id.
"""

CallId = NewType("CallId", Word)
"""A round of a client; a reply names the call which it answers."""

NO_CALL = CallId(0)
"""The call of a message without a request, or of a message that crosses no network."""

DEFAULT_DOMAIN = DomainName("default")

NO_DOMAIN = DomainName("")
"""The domain of a list of servers without a configuration; no knowledge of a real domain applies to
it.
"""

RESERVED = "\0"
"""Prefix that keys of users never have."""

FILE_DOMAINS = "file/"
"""Prefix of the domains of single files."""

MIRROR_DOMAINS = "mirror/"
"""Prefix of mirrors: domains with read-only copies (ares/registers/mirroring.py).
"""

DIRECTORY_PREFIX = RESERVED + "domain/"
"""Prefix of directory entries in `default`: domain name to its first configuration, written once.
"""

FOLLOWING_PREFIX = RESERVED + "follow/"
"""Prefix of objects in `default` that name the domains which follow their users (docs/sites.md)."""

OF_WRITERS = tuple(RESERVED + kind for kind in ("file/", "block/", "mark/", "mirror/"))
"""Prefixes of reserved names that the role ``write`` puts: parts of files, and notes of mirrors.

Any other reserved name takes the role ``reconfigure``: directory entries, and names which only a
move carries along and no operation makes.
"""

KEY_BYTES_MAX = 1024
DOMAIN_BYTES_MAX = 1000
VALUE_BYTES_DEFAULT = 256 * 1024 * 1024
"""Bytes of the largest value, unless the cluster file says more."""

VALUE_BYTES_MAX = 1024 * 1024 * 1024
"""Bytes of the largest value that a cluster file may allow."""


def fits(text: str, bytes_max: int) -> bool:
    """Return whether ``text`` takes at most ``bytes_max`` bytes as UTF-8.

    The check takes the same time for a text of any length.
    """
    characters = len(text)
    return 4 * characters <= bytes_max or (
        characters <= bytes_max and len(text.encode(errors="replace")) <= bytes_max
    )


def is_object_name(name: str) -> bool:
    """Return whether the name is possible for an object, be it a user's key or a reserved name."""
    return name != "" and fits(name, KEY_BYTES_MAX)


def takes_more_than_write(name: str) -> bool:
    """Return whether putting an object with this name takes the role ``reconfigure``."""
    return name.startswith(RESERVED) and not name.startswith(OF_WRITERS)


def is_domain_name(name: str) -> bool:
    """Return whether the name is possible for a domain."""
    return name != "" and fits(name, DOMAIN_BYTES_MAX) and name.isprintable()


def shown(name: str) -> str:
    """Describe an object in a message: the key as a literal, or for example ``domain 'photos'``."""
    if not name.startswith((DIRECTORY_PREFIX, FOLLOWING_PREFIX, *OF_WRITERS)):
        return repr(name)
    kind, _, rest = name.removeprefix(RESERVED).partition("/")
    return f"{kind} {rest!r}"
