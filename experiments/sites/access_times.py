"""The study's experiments 1 and 2: local access at all sites at once, and remote access.

In remote access a site reads twice the objects that another site wrote. Metadata is measured apart.
"""

import asyncio
import time
from collections.abc import Callable

from experiments.sites.fog_plan import METADATA_WORKS, WORKS, FogWork
from experiments.sites.fog_scene import FogScene, all_done, gets, mean_s, puts, together
from experiments.sites.orders import Answer, Order
from experiments.sites.site_users import User


async def measure_local(scene: FogScene) -> None:
    """Measure local access.

    The figures are seconds for all objects, a mean over the sites and repetitions, and the bytes
    that left sites, also as a share of the bytes written or read.
    """
    async with scene.users(scene.bed.sites) as users:
        for work in WORKS:
            repeats = scene.extent.repeats(work.objects)
            written: list[Answer] = []
            read: list[Answer] = []
            sent = {"write": 0, "read": 0}
            for repeat in range(repeats):
                left = scene.left()
                written += await together(users, _writes(work, repeat))
                between = scene.left()
                read += await together(users, _reads(work, repeat))
                sent["write"] += between - left
                sent["read"] += scene.left() - between
            stored = work.objects * work.object_size * len(users)
            figures = {"write_all_s": mean_s(written), "read_all_s": mean_s(read)}
            for op in ("write", "read"):
                figures[f"{op}_between_bytes"] = sent[op] / repeats
                figures[f"{op}_between_share"] = figures[f"{op}_between_bytes"] / stored
            scene.note("local", figures, all_done([*written, *read]), **work.parameters())


async def measure_remote(scene: FogScene) -> None:
    """Measure remote access: the first site writes; the second reads the objects twice.

    The second site has not used these objects before. The figures are means over the repetitions.
    """
    home, away = scene.bed.sites[:2]
    async with scene.users([home, away]) as (writer, reader):
        for work in WORKS:
            repeats = scene.extent.repeats(work.objects)
            answers: dict[str, list[Answer]] = {"write": [], "first": [], "second": []}
            sent = {"first": 0, "second": 0}
            for repeat in range(repeats):
                names = _names(home, work, repeat)
                written = await writer.do(Order(puts(names, work.object_size), work.parallel))
                left = scene.left()
                first = await reader.do(Order(gets(names), work.parallel, known=written.known))
                between = scene.left()
                second = await reader.do(Order(gets(names), work.parallel))
                sent["first"] += between - left
                sent["second"] += scene.left() - between
                for name, answer in zip(answers, (written, first, second), strict=True):
                    answers[name].append(answer)
            stored = work.objects * work.object_size * repeats
            figures = {f"{name}_all_s": mean_s(each) for name, each in answers.items()}
            figures |= {f"{name}_between_share": sent[name] / stored for name in sent}
            done = all_done(answer for each in answers.values() for answer in each)
            scene.note("remote", figures, done, **work.parameters())


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
            left, began_s = scene.left(), time.monotonic()
            written = await together(users, _writes(work, kind=kind))
            await asyncio.sleep(scene.extent.quiet_s)
            sent = scene.left() - left
            beyond = scene.beyond_idle(sent, time.monotonic() - began_s)
            figures = {"metadata_bytes": max(1.0, beyond)}
            scene.note("metadata", figures, all_done(written), **work.parameters())


def _writes(work: FogWork, repeat: int = 0, kind: str = "object") -> Callable[[User], Order]:
    """Return the order of each user to write the objects of its site."""
    size, lanes = work.object_size, work.parallel
    return lambda user: Order(puts(_names(user.site, work, repeat, kind), size), lanes)


def _reads(work: FogWork, repeat: int) -> Callable[[User], Order]:
    """Return the order of each user to read the objects of its site."""
    return lambda user: Order(gets(_names(user.site, work, repeat)), work.parallel)


def _names(site: str, work: FogWork, repeat: int = 0, kind: str = "object") -> list[str]:
    """Return the names; the next work of this kind writes the same objects if the store can.

    A repetition is of other objects.
    """
    first = repeat * work.objects
    return [f"{site}/{kind}-{number}" for number in range(first, first + work.objects)]
