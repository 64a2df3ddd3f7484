"""Reads that accept stale data, answered by a mirror at the client's site.

See rule R22 and docs/sites.md.
"""

from msgspec import Struct

from ares.client.domain_directory import DomainDirectory
from ares.client.mirrors import age_s, as_of, is_removed, opened
from ares.client.store import ObjectStore, checked_key
from ares.model.errors import BadInput, MirrorTooOld, NotInMirror, ObjectNotFound, Unavailable
from ares.model.numbers import SECONDS_MAX, is_number, shown_number
from ares.model.tag import Tag
from ares.registers.mirroring import MirrorName

MIRROR_FOUND_S = 2.0
"""Seconds spent on the search for a mirror unknown to the servers of the client's site.

The directory may be cut off while the domain is at this site.
"""


class StaleValue(Struct, frozen=True):
    """The result of a stale read: ``value``, as version ``tag``.

    The value was the latest at a moment at most ``age_s`` ago. ``site``: the site of the mirror
    which answered; None if the domain itself answered with the latest value.
    """

    value: bytes
    tag: Tag
    age_s: float
    site: str | None


async def read_stale(
    directory: DomainDirectory,
    key: str,
    domain: str,
    site: str | None,
    max_age_s: float | None,
    timeout_s: float | None,
) -> StaleValue:
    """Read an object from a mirror; see :meth:`ares.client.manager.Manager.read_stale`."""
    name = checked_key(key)
    if max_age_s is not None and not is_number(max_age_s, SECONDS_MAX):
        raise BadInput(
            f"a greatest age is a number of seconds from 0 to {SECONDS_MAX:g}, not "
            f"{shown_number(max_age_s)}; nothing was sent"
        )
    life = 1
    while site is not None and await directory.is_near(MirrorName(domain, site, life + 1).name):
        life += 1  # earlier mirrors were removed, and their servers may be gone
    while (
        site is not None
        and (store := await _found(directory, MirrorName(domain, site, life), timeout_s))
        is not None
    ):
        # read before the value, which is therefore at least as new
        began_s = await as_of(store, timeout_s)
        found = await store.read_named(name, timeout_s)
        if await is_removed(store, timeout_s):
            # read after the value: if still present, the mirror lacks no object of the domain
            life += 1
            continue
        if began_s is None:
            break
        age = age_s(began_s)
        if max_age_s is not None and age > max_age_s:
            raise MirrorTooOld(key, domain, site, age, max_age_s)
        if not isinstance(found.value, bytes):
            raise NotInMirror(key, domain, site, age)
        return StaleValue(found.value, found.tag, age, site)
    found = await (await directory.domain(domain, timeout_s=timeout_s)).read_named(name, timeout_s)
    if not isinstance(found.value, bytes):
        raise ObjectNotFound(key, domain)
    return StaleValue(found.value, found.tag, 0.0, None)


async def _found(
    directory: DomainDirectory, name: MirrorName, timeout_s: float | None
) -> ObjectStore | None:
    """Return the mirror's domain; None if no answer came.

    The usual read, which follows, is a good answer, too.
    """
    try:
        return await opened(
            directory, name, MIRROR_FOUND_S if timeout_s is None else min(MIRROR_FOUND_S, timeout_s)
        )
    except Unavailable:
        return None
