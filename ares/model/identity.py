"""Distinct id types, so that the type checker notices an object's name where a server's was meant."""

from typing import NewType

from ares.model.numbers import Word

ServerId = NewType("ServerId", str)
"""A server's name in the cluster file, for example ``s0``."""

ClientId = NewType("ClientId", Word)
"""64 bits, random unless configured; the writer half of a tag (paper: wid)."""

ObjectName = NewType("ObjectName", str)
"""A key: non-empty UTF-8 of at most 1024 bytes."""

DomainName = NewType("DomainName", str)
"""A set of objects that share one configuration sequence (paper: D)."""

ConfigurationId = NewType("ConfigurationId", bytes)
"""Digest of a configuration's domain, index and content: two different ones never share a name."""

CallId = NewType("CallId", Word)
"""One round of one client; a reply names the call that it answers."""

NO_CALL = CallId(0)
"""Of a message that nobody asked for, or that crosses no network."""

DEFAULT_DOMAIN = DomainName("default")

NO_DOMAIN = DomainName("")
"""Where a list of servers that is no configuration is placed, so that nothing that is known of a real domain applies to it."""

RESERVED = "\0"
"""What keys of users never begin with."""

FILE_DOMAINS = "file/"
"""What the domains of single files begin with."""

MIRROR_DOMAINS = "mirror/"
"""What the domains of mirrors begin with: read-only copies of other domains (ares/objects/mirroring.py)."""

DIRECTORY = RESERVED + "domain/"
"""Objects of `default` that begin so are directory entries: domain name to its first configuration, written once."""

FOLLOWING = RESERVED + "follow/"
"""Objects of `default` that begin so name the domains that follow their users (docs/sites.md)."""

OF_WRITERS = tuple(RESERVED + kind for kind in ("file/", "block/", "mark/", "mirror/"))
"""Prefixes of reserved names that the role ``write`` puts: parts of files, and notes of mirrors.

Any other reserved name takes the role ``reconfigure``: directory entries, and the names of no
operation, which only a move carries along.
"""

KEY_BYTES_MAX = 1024
DOMAIN_BYTES_MAX = 1000
VALUE_BYTES_MAX = 256 * 1024 * 1024


def fits(text: str, bytes_max: int) -> bool:
    """Whether ``text`` takes at most so many bytes as UTF-8. A text of any length is looked at in the same time."""
    characters = len(text)
    return 4 * characters <= bytes_max or (
        characters <= bytes_max and len(text.encode(errors="replace")) <= bytes_max
    )


def is_object_name(name: str) -> bool:
    """Whether an object can have this name, be it a user's key or one of the project's own."""
    return name != "" and fits(name, KEY_BYTES_MAX)


def takes_more_than_write(name: str) -> bool:
    """Whether putting an object with this name takes the role ``reconfigure``."""
    return name.startswith(RESERVED) and not name.startswith(OF_WRITERS)


def is_domain_name(name: str) -> bool:
    """Whether a domain can have this name."""
    return name != "" and fits(name, DOMAIN_BYTES_MAX) and name.isprintable()


def shown(name: str) -> str:
    """Describe an object in a message: the key as a literal, or for example ``domain 'photos'``."""
    if not name.startswith((DIRECTORY, FOLLOWING, *OF_WRITERS)):
        return repr(name)
    kind, _, rest = name.removeprefix(RESERVED).partition("/")
    return f"{kind} {rest!r}"
