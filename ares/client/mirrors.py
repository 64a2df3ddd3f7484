"""The mirrors of a cluster: their list, their ages, and how to make and remove a mirror.

See ares/registers/mirroring.py.
"""

import time

from msgspec import Struct

from ares.client.domain_directory import DomainDirectory
from ares.client.store import ObjectStore
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, DomainNotFound, MirrorNotFound
from ares.model.identity import (
    DIRECTORY_PREFIX,
    FILE_DOMAINS,
    MIRROR_DOMAINS,
    DomainName,
    is_domain_name,
)
from ares.registers.mirroring import (
    AS_OF,
    REMOVED,
    MirrorName,
    UnreadableRecord,
    decode_as_of,
    parse_mirror,
)


class Mirror(Struct, frozen=True):
    """A read-only copy of ``domain`` at ``site``.

    The mirror has every change completed more than ``age_s`` seconds ago; None: never complete.
    """

    domain: DomainName
    site: str
    configuration: Configuration
    age_s: float | None


async def list_mirrors(
    directory: DomainDirectory, timeout_s: float | None = None
) -> list[MirrorName]:
    """Return the names of all mirrors ever made, including removed mirrors."""
    entries = [
        entry async for entry in directory.list_named(DIRECTORY_PREFIX + MIRROR_DOMAINS, timeout_s)
    ]
    parsed = (parse_mirror(entry.removeprefix(DIRECTORY_PREFIX)) for entry in entries)
    return [name for name in parsed if name is not None]


async def opened(
    directory: DomainDirectory, name: MirrorName, timeout_s: float | None = None
) -> ObjectStore | None:
    """Return the domain which holds the mirror, or None if the mirror was never made."""
    if not is_domain_name(name.name):
        return None
    try:
        found = await directory.domain_or_log(name.name, timeout_s=timeout_s)
    except DomainNotFound:
        return None
    return found if isinstance(found, ObjectStore) else None


async def is_removed(store: ObjectStore, timeout_s: float | None = None) -> bool:
    return isinstance((await store.read_named(REMOVED, timeout_s)).value, bytes)


async def as_of(store: ObjectStore, timeout_s: float | None = None) -> float | None:
    """Return the time, in seconds since 1970, before which all completed changes are in the mirror.

    None if the mirror was never complete.
    """
    record = (await store.read_named(AS_OF, timeout_s)).value
    try:
        return decode_as_of(record) if isinstance(record, bytes) else None
    except UnreadableRecord:
        return None


def age_s(began_s: float) -> float:
    """Return the age of a moment, which is never negative.

    If the clock of this machine and the clock of the copying machine disagree, the age is wrong by
    the difference.
    """
    return max(0.0, time.time() - began_s)


async def newest_life(
    directory: DomainDirectory, domain: str, site: str, timeout_s: float | None = None
) -> tuple[MirrorName, ObjectStore | None]:
    """Return the present mirror of ``domain`` at ``site``, with its name.

    Without a present mirror: the name of the next mirror, and None.
    """
    last = max(
        (
            name.life
            for name in await list_mirrors(directory, timeout_s)
            if (name.domain, name.site) == (domain, site)
        ),
        default=0,
    )
    store = await opened(directory, MirrorName(domain, site, last), timeout_s) if last else None
    if store is None or await is_removed(store, timeout_s):
        return MirrorName(domain, site, last + 1), None
    return MirrorName(domain, site, last), store


def fit_for_mirrors(domain: str, found: object) -> ObjectStore:
    """Return ``found``, the domain called ``domain``, if it can have mirrors.

    Raises :class:`BadInput` if it cannot.
    """
    why = ""
    if domain.startswith(MIRROR_DOMAINS):
        why = "is a mirror itself"
    elif domain.startswith(FILE_DOMAINS):
        why = "is a file, and its blocks have a meaning only together"
    elif not is_domain_name(MirrorName(domain, "x" * 64, 10**8).name):
        why = "has too long a name"
    elif isinstance(found, ObjectStore) and found.configuration.write_once:
        why = "is write-once, and an index outside the domain names its objects"
    if isinstance(found, ObjectStore) and not why:
        return found
    why = why or "is a log: let servers of the other site be in its chain"
    raise BadInput(f"{domain!r} {why}. It can have no mirror, and nothing was changed")


async def remove(
    directory: DomainDirectory, domain: str, site: str, timeout_s: float | None = None
) -> None:
    """Mark the mirror as removed. Raises :class:`MirrorNotFound`."""
    _, store = await newest_life(directory, domain, site, timeout_s)
    if store is None:
        raise MirrorNotFound(domain, site)
    await store.write_named(REMOVED, b"", timeout_s)


async def states(directory: DomainDirectory, timeout_s: float | None = None) -> list[Mirror]:
    """Return all mirrors."""
    last: dict[tuple[str, str], MirrorName] = {}
    for name in await list_mirrors(directory, timeout_s):
        key = (name.site, name.domain)
        last[key] = max(name, last.get(key, name), key=lambda each: each.life)
    found = []
    for name in last.values():
        store = await opened(directory, name, timeout_s)
        if store is not None and not await is_removed(store, timeout_s):
            configuration, began_s = (
                await store.current(timeout_s=timeout_s),
                await as_of(store, timeout_s),
            )
            found.append(
                Mirror(
                    DomainName(name.domain),
                    name.site,
                    configuration,
                    None if began_s is None else age_s(began_s),
                )
            )
    return found
