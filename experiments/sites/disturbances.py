"""Disturbances: a busy site beside quiet sites, a cut site, and a user that moves."""

import asyncio
import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from time import perf_counter

from experiments.sites.fog_scene import FogScene, all_done, gets, pair, puts, together
from experiments.sites.orders import MB, FinishedOperation, Operation, Order
from experiments.sites.site_store import OperationFailed

QUIET_BYTES = 100_000
_PACE_S = 0.1
_BUSY_LANES = 4
_BEFORE_S = 3.0
_ALONE = 2 / 3
"""Part of a cut without new users."""
_DISTURBED_OPERATION_S = 5.0
_KEPT_OBJECTS = 10
_MOVED_OBJECTS = 10
_ROUND_PAUSE_S = 0.5
NEAR_FACTOR = 1.5
"""Factor for local access: the largest ratio to the local user's time for own objects."""


async def measure_containment(scene: FogScene) -> None:
    """Measure quiet sites alone, and beside a busy site.

    The figures include the bytes that local work sends between sites, beyond the bytes of an idle
    network.
    """
    await scene.watch_idle()
    busy_site, *quiet_sites = scene.bed.sites
    async with scene.users(quiet_sites) as quiet, scene.users([busy_site]) as (busy,):
        seconds = scene.extent.quiet_s

        def gently(site: str) -> Order:
            return Order(pair(f"{site}/quiet", QUIET_BYTES), for_s=seconds, pace_s=_PACE_S)

        lanes = [f"{busy_site}/busy-{lane}" for lane in range(_BUSY_LANES)]
        await busy.do(Order(puts(lanes, MB)))
        left = scene.left()
        alone = all_done(await together(quiet, lambda user: gently(user.site)))
        sent_alone = scene.left() - left
        hard = tuple(operation for lane in lanes for operation in pair(lane, MB))
        left = scene.left()
        beside, worked = await asyncio.gather(
            together(quiet, lambda user: gently(user.site)),
            busy.do(Order(hard, _BUSY_LANES, for_s=seconds, pace_s=_PACE_S)),
        )
        sent = scene.left() - left
    done = all_done(beside)
    figures = {
        "idle_B_s": scene.idle_per_s,
        "alone_p50_s": _p50(alone),
        "beside_p50_s": _p50(done),
        "beside_over_alone": _p50(done) / _p50(alone),
        "alone_bytes_per_op": scene.beyond_idle(sent_alone, seconds) / len(alone),
        "bytes_per_op": scene.beyond_idle(sent, seconds) / (len(done) + len(worked.done)),
        "busy_ops": float(len(worked.done)),
    }
    scene.note("containment", figures, [*alone, *done, *worked.done])


async def measure_cut(scene: FogScene) -> None:
    """Cut the last site off, and heal the cut, while users work inside and outside.

    A user outside reads an object of the site. New users come late, because permissions from before
    the cut must expire first, such as the lease of a monitor of RADOS (10 s and an election).
    """
    away, *_, site = scene.bed.sites
    cut_s = scene.extent.cut_s
    whole_s = _BEFORE_S + cut_s + max(cut_s, _DISTURBED_OPERATION_S)
    shared = f"{site}/read-across"
    kept_names = [f"{site}/in-the-cut-{number}" for number in range(_KEPT_OBJECTS)]
    async with scene.users([site, site, away, away]) as (inside, writer, outside, across):
        made = await inside.do(Order(pair(shared, QUIET_BYTES)))
        await across.do(Order(gets([shared]), known=made.known))
        loops = asyncio.gather(
            inside.do(_steady(pair(f"{site}/steady", QUIET_BYTES), whole_s)),
            outside.do(_steady(pair(f"{away}/steady", QUIET_BYTES), whole_s)),
            across.do(_steady(gets([shared]), whole_s)),
        )
        await asyncio.sleep(_BEFORE_S)
        scene.bed.cut(site)
        cut_at_s = perf_counter()
        written = asyncio.ensure_future(
            writer.do(Order(puts(kept_names, QUIET_BYTES), timeout_s=cut_s))
        )
        await asyncio.sleep(cut_s * _ALONE)
        rest_s = cut_s * (1 - _ALONE)
        newcomers = asyncio.gather(*(_newcomer(scene, place, rest_s) for place in (site, away)))
        await asyncio.sleep(rest_s)
        scene.bed.heal(site)
        healed_at_s = perf_counter()
        steady, elsewhere, reads = await loops
        new_inside_s, new_outside_s = await newcomers
        after = await outside.do(Order(gets(kept_names), known=(await written).known))
    figures = {"cut_s": healed_at_s - cut_at_s}
    for name, seconds in (("new_inside", new_inside_s), ("new_outside", new_outside_s)):
        figures[name] = float(seconds is not None)
        figures |= {} if seconds is None else {f"{name}_s": seconds}
    figures |= cut_figures(steady.done, elsewhere.done, reads.done, cut_at_s, healed_at_s)
    figures["written_in_cut_read"] = sum(not each.failed for each in after.done) / len(after.done)
    scene.note("cut", figures, [*elsewhere.done, *after.done])


def cut_figures(
    inside: Sequence[FinishedOperation],
    outside: Sequence[FinishedOperation],
    across: Sequence[FinishedOperation],
    cut_at_s: float,
    healed_at_s: float,
) -> dict[str, float]:
    """Return figures of existing users: inside the site, outside, and reading across the cut.

    ``healed_s`` is the time until reads across succeed again.
    """
    figures = {
        "inside_kept": kept(inside, cut_at_s, healed_at_s),
        "inside_pause_s": longest_pause_s(inside, cut_at_s, healed_at_s),
        "outside_kept": kept(outside, cut_at_s, healed_at_s),
        "outside_pause_s": longest_pause_s(outside, cut_at_s, healed_at_s),
        "across_kept": kept(across, cut_at_s, healed_at_s),
        "after_kept": kept(inside, healed_at_s, math.inf),
    }
    ended_s = (each.ended_s for each in across if not each.failed)
    seen_s = [end_s - healed_at_s for end_s in ended_s if end_s > healed_at_s]
    return figures | ({"healed_s": min(seen_s)} if seen_s else {})


def _steady(operations: tuple[Operation, ...], seconds: float) -> Order:
    return Order(operations, for_s=seconds, pace_s=_PACE_S, timeout_s=_DISTURBED_OPERATION_S)


async def _newcomer(scene: FogScene, site: str, within_s: float) -> float | None:
    """Return the seconds of a new process at ``site`` to connect, write and read an object.

    Return `None` if the process did not succeed ``within_s``.
    """
    began_s = perf_counter()
    try:
        async with asyncio.timeout(within_s), scene.user(site, within_s) as user:
            answer = await user.do(Order(pair(f"{site}/newcomer", QUIET_BYTES), timeout_s=within_s))
            return None if any(each.failed for each in answer.done) else perf_counter() - began_s
    except (OperationFailed, TimeoutError):
        return None


def kept(done: Iterable[FinishedOperation], from_s: float, until_s: float) -> float:
    """Return the share of successful operations among those begun and ended in this time, or 0.

    An operation of which the end is later may owe its success to the end of the cut.
    """
    inside = [not each.failed for each in done if from_s <= each.began_s and each.ended_s < until_s]
    return sum(inside) / len(inside) if inside else 0.0


def longest_pause_s(done: Iterable[FinishedOperation], from_s: float, until_s: float) -> float:
    """Return the longest part of this time without a successful operation."""
    ends = sorted(each.ended_s for each in done if not each.failed)
    inside = [end_s for end_s in ends if from_s < end_s < until_s]
    return max(later - sooner for sooner, later in pairwise([from_s, *inside, until_s]))


async def measure_move(scene: FogScene) -> None:
    """Measure a user that wrote objects at a site and continues at another.

    At the second site the user reads the objects repeatedly, and writes an object.
    """
    home, away = scene.bed.sites[:2]
    names = [f"{home}/moved-{number}" for number in range(_MOVED_OBJECTS)]
    own = [f"{away}/own-{number}" for number in range(_MOVED_OBJECTS)]
    rounds: list[tuple[float, float]] = []
    async with scene.users([home, away]) as (before, after):
        written = await before.do(Order(puts(names, MB)))
        local = [await after.do(Order(puts(own, MB)))]
        local += [await after.do(Order(gets(own))) for _ in range(3)]
        done = all_done([written, *local])
        began_s, known = perf_counter(), written.known
        while not rounds or perf_counter() < began_s + scene.extent.move_s:
            answer = await after.do(Order(gets(names), known=known))
            rounds.append((perf_counter() - began_s, answer.seconds))
            done += answer.done
            await asyncio.sleep(_ROUND_PAUSE_S)
        wrote = await after.do(Order(puts(names, MB)))
    local_s = statistics.median(answer.seconds for answer in local[1:])
    figures = {
        "local_all_s": local_s,
        "first_all_s": rounds[0][1],
        "second_all_s": rounds[1][1] if len(rounds) > 1 else rounds[0][1],
        "last_all_s": statistics.median(seconds for _, seconds in rounds[-3:]),
        "write_over_local": wrote.seconds / local[0].seconds,
    }
    figures |= {
        f"{which}_over_local": figures[f"{which}_all_s"] / local_s
        for which in ("first", "second", "last")
    }
    near_since_s = settled_s(rounds, NEAR_FACTOR * local_s)
    figures |= {} if near_since_s is None else {"settled_s": near_since_s}
    scene.note("move", figures, [*done, *wrote.done])


def settled_s(rounds: Sequence[tuple[float, float]], limit_s: float) -> float | None:
    """Return the end of the first round from which half of all rounds took at most ``limit_s``.

    Return `None` if the last three did not. Pairs are (end, duration).
    """
    took_s = [seconds for _, seconds in rounds]
    if statistics.median(took_s[-3:]) > limit_s:
        return None
    places = range(len(rounds) - 2)
    far = [each for each in places if statistics.median(took_s[each : each + 3]) > limit_s]
    return rounds[min(far[-1] + 1 if far else 0, len(rounds) - 1)][0]


def _p50(done: Sequence[FinishedOperation]) -> float:
    """Return the median of successful operations. Raises OperationFailed without any."""
    took_s = [each.took_s for each in done if not each.failed]
    if not took_s:
        raise OperationFailed(
            f"no operation of a quiet site succeeded: {done[0].failed if done else 'none ended'}"
        )
    return statistics.median(took_s)
