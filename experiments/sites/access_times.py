"""The study's experiments 1 and 2: local access at all sites at once, and remote access.

In remote access a site reads twice the objects that another site wrote. Metadata is measured apart.
"""

import asyncio
import time

from experiments.sites.fog_plan import METADATA_WORKS, WORKS, FogWork
from experiments.sites.fog_scene import FogScene, all_done, gets, mean_s, puts, together
from experiments.sites.orders import Order


async def measure_local(scene: FogScene) -> None:
    """Measure local access.

    The figures are seconds for all objects, a mean over the sites, and the bytes that left sites,
    as a share of the bytes written or read.
    """
    async with scene.users(scene.bed.sites) as users:
        for work in WORKS:
            left = sum(scene.bed.left().values())
            written = await together(
                users,
                lambda user, work=work: Order(
                    puts(_names(user.site, work), work.object_size), work.parallel
                ),
            )  # type: ignore[misc]
            between = sum(scene.bed.left().values())
            read = await together(
                users, lambda user, work=work: Order(gets(_names(user.site, work)), work.parallel)
            )  # type: ignore[misc]
            stored = work.objects * work.object_size * len(users)
            figures = {
                "write_all_s": mean_s(written),
                "read_all_s": mean_s(read),
                "write_between_bytes": float(between - left),
                "read_between_bytes": float(sum(scene.bed.left().values()) - between),
            }
            figures |= {
                f"{op}_between_share": figures[f"{op}_between_bytes"] / stored
                for op in ("write", "read")
            }
            scene.note("local", figures, all_done([*written, *read]), **work.parameters())


async def measure_remote(scene: FogScene) -> None:
    """Measure remote access: the first site writes; the second reads the objects twice.

    The second site has not used these objects before.
    """
    home, away = scene.bed.sites[:2]
    async with scene.users([home, away]) as (writer, reader):
        for work in WORKS:
            names = _names(home, work)
            written = await writer.do(Order(puts(names, work.object_size), work.parallel))
            left = sum(scene.bed.left().values())
            first = await reader.do(Order(gets(names), work.parallel, known=written.known))
            between = sum(scene.bed.left().values())
            second = await reader.do(Order(gets(names), work.parallel))
            stored = work.objects * work.object_size
            figures = {
                "write_all_s": written.seconds,
                "first_all_s": first.seconds,
                "second_all_s": second.seconds,
                "first_between_share": (between - left) / stored,
                "second_between_share": (sum(scene.bed.left().values()) - between) / stored,
            }
            scene.note("remote", figures, all_done([written, first, second]), **work.parameters())


async def measure_metadata(scene: FogScene) -> None:
    """Measure the bytes that writes of new objects at all sites send, beyond an idle network's.

    Stores with a copy at the object's own site send no part of an object, so all is metadata. It
    may follow its objects: the count ends `quiet_s` after the last write. It is never 0, as a
    divisor: a byte stands for less.
    """
    async with scene.users(scene.bed.sites) as users:
        await scene.watch_idle()
        for work in METADATA_WORKS:
            kind = f"metadata-{work.objects}-{work.object_size}"
            left, began_s = sum(scene.bed.left().values()), time.monotonic()
            written = await together(
                users,
                lambda user, work=work, kind=kind: Order(
                    puts(_names(user.site, work, kind), work.object_size), work.parallel
                ),
            )  # type: ignore[misc]
            await asyncio.sleep(scene.extent.quiet_s)
            sent = sum(scene.bed.left().values()) - left
            beyond = scene.beyond_idle(sent, time.monotonic() - began_s)
            figures = {"metadata_bytes": max(1.0, beyond)}
            scene.note("metadata", figures, all_done(written), **work.parameters())


def _names(site: str, work: FogWork, kind: str = "object") -> list[str]:
    """Return the names; the next work of this kind writes the same objects if the store can."""
    return [f"{site}/{kind}-{number}" for number in range(work.objects)]
