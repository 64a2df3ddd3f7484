"""Reads that accept stale data, answered by a mirror at the client's site (rule R22, docs/sites.md)."""

from typing import TYPE_CHECKING

from msgspec import Struct

from ares.client.mirrors import age_s, as_of, is_removed, opened
from ares.client.store import ObjectStore, checked_key
from ares.model.errors import BadInput, MirrorTooOld, NotInMirror, ObjectNotFound, Unavailable
from ares.model.numbers import SECONDS_MAX, is_number, shown_number
from ares.model.tag import Tag
from ares.objects.mirroring import MirrorName

if TYPE_CHECKING:
    from ares.client.manager import Manager


FOUND_S = 2.0
"""How long a mirror is looked for that no server of this site knows: the directory may be cut off, and the domain here."""


class StaleValue(Struct, frozen=True):
    """``value``, as version ``tag``, was the latest at some moment not longer than ``age_s`` ago. ``site``: of the mirror that answered; None: the
    domain itself did, and the value is the latest."""

    value: bytes
    tag: Tag
    age_s: float
    site: str | None


async def read_stale(
    manager: "Manager",
    key: str,
    domain: str,
    site: str | None,
    max_age_s: float | None,
    timeout_s: float | None,
) -> StaleValue:
    """See :meth:`ares.client.manager.Manager.read_stale`."""
    name = checked_key(key)
    if max_age_s is not None and not is_number(max_age_s, SECONDS_MAX):
        raise BadInput(
            f"a greatest age is a number of seconds from 0 to {SECONDS_MAX:g}, not {shown_number(max_age_s)}; nothing was sent"
        )
    life = 1
    while site is not None and await manager.is_near(MirrorName(domain, site, life + 1).name):
        life += 1  # those before it were removed, and their servers may be gone
    while (
        site is not None
        and (store := await _found(manager, MirrorName(domain, site, life), timeout_s)) is not None
    ):
        began_s = await as_of(
            store, timeout_s
        )  # before the value, which then is as new as that says
        found = await store.read_named(name, timeout_s)
        if await is_removed(
            store, timeout_s
        ):  # after the value: if not, nothing was deleted that the domain has
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
    found = await (await manager.domain(domain, timeout_s=timeout_s)).read_named(name, timeout_s)
    if not isinstance(found.value, bytes):
        raise ObjectNotFound(key, domain)
    return StaleValue(found.value, found.tag, 0.0, None)


async def _found(
    manager: "Manager", name: MirrorName, timeout_s: float | None
) -> ObjectStore | None:
    """The mirror's domain; None if there is none, or nobody says so: the usual read that follows is as good as any."""
    try:
        return await opened(
            manager, name, FOUND_S if timeout_s is None else min(FOUND_S, timeout_s)
        )
    except Unavailable:
        return None
