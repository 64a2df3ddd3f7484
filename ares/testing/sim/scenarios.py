"""The scenarios that plans are drawn for: which faults, how many clients, and what these do."""

from msgspec import Struct

SHARED, ATOMIC = "f", "a"
"""Keys that begin so are names of files."""


class Shape(Struct, frozen=True):
    """A scenario: bounds from which plans are drawn. ``frail``: how many servers faults strike; None: all. ``listings``, ``collections``: how
    many of the steps of readers, and of clients that put files, are such."""

    servers: tuple[int, int] = (5, 5)
    writers: tuple[int, int] = (1, 3)
    readers: tuple[int, int] = (1, 3)
    reconfigurers: tuple[int, int] = (1, 2)
    steps: tuple[int, int] = (3, 5)
    reconfigurations: tuple[int, int] = (1, 2)
    keys: tuple[int, int] = (1, 2)
    faults: tuple[int, int] = (0, 4)
    kinds: tuple[str, ...] = ("crash", "kill", "disk", "cut", "cut-in", "cut-out", "slow", "consensus")
    daps: tuple[str, ...] = ("abd", "ec")
    deaths: float = 0.15
    dies_s: tuple[float, float] = (0.0, 0.5)
    loss: tuple[float, ...] = (0.0, 0.025, 0.1)
    tail: tuple[float, float] = (1.1, 3.0)
    bad_links: tuple[float, ...] = (0.0, 0.0, 0.1)
    chaos_s: float = 2.0
    pause_s: float = 0.02
    plain: float = 0.25
    delta: int = 8
    k: tuple[int, int] = (2, 3)
    lanes: tuple[int, ...] = (1, 1, 2)
    versioned_keys: tuple[int, int] | None = None
    files: tuple[str, ...] = ()
    removals: float = 0.0
    listings: float = 0.0
    collectors: tuple[int, int] = (0, 0)
    collections: float = 0.0
    segment_bytes: tuple[int, ...] = ()
    value_bytes: tuple[int, ...] = ()
    sync_s: tuple[float, ...] = ()
    frail: int | None = None


SCENARIOS: dict[str, Shape] = {
    "general": Shape(),
    "calm": Shape(faults=(0, 0), deaths=0.0, loss=(0.0,), bad_links=(0.0,)),
    "crash": Shape(faults=(2, 6), kinds=("crash", "kill", "disk")),
    "partition": Shape(faults=(2, 5), kinds=("cut", "cut-in", "cut-out", "slow")),
    "reconfigure": Shape(reconfigurers=(2, 3), reconfigurations=(1, 3), faults=(0, 2)),
    "consensus": Shape(reconfigurers=(2, 3), kinds=("consensus", "crash"), faults=(1, 4)),
    "wide": Shape(servers=(7, 9), k=(2, 5), faults=(1, 5), writers=(2, 4)),
    "moving": Shape(
        writers=(2, 3), readers=(2, 3), reconfigurers=(1, 2), steps=(6, 10), reconfigurations=(2, 4), keys=(1, 3), lanes=(1, 2, 3), plain=0.1,
        faults=(0, 2), kinds=("slow", "slow", "cut", "cut-in", "cut-out", "crash"), deaths=0.1, tail=(1.05, 1.6), loss=(0.0, 0.0, 0.025),
        pause_s=0.01, chaos_s=3.0,
    ),
    "listing": Shape(
        servers=(3, 5), writers=(2, 4), readers=(2, 3), reconfigurers=(1, 2), steps=(3, 6), reconfigurations=(1, 3), keys=(1, 2), listings=0.6,
        daps=("abd",), deaths=0.5, dies_s=(0.0, 0.1), faults=(0, 1), kinds=("slow", "cut-in", "cut-out"), loss=(0.0, 0.1), tail=(1.05, 1.6),
        bad_links=(0.0, 0.25), plain=0.1, pause_s=0.01,
    ),
    "duel": Shape(
        servers=(3, 3), writers=(2, 2), readers=(0, 0), reconfigurers=(1, 1), steps=(3, 3), reconfigurations=(1, 1), keys=(12, 12), daps=("abd",),
        faults=(0, 0), deaths=0.0, loss=(0.05,), bad_links=(0.25,), plain=0.0, tail=(1.2, 3.0), pause_s=0.01, lanes=(1,),
    ),
    "deaths": Shape(writers=(3, 5), readers=(2, 3), reconfigurers=(2, 3), deaths=0.6, dies_s=(0.0, 0.1), keys=(1, 1), loss=(0.1, 0.3), faults=(0, 2)),
    "graves": Shape(
        daps=("ec",), k=(3, 3), writers=(4, 6), readers=(1, 1), reconfigurers=(0, 0), steps=(1, 2), keys=(1, 1), faults=(0, 1),
        deaths=0.9, dies_s=(0.02, 0.12), loss=(0.1,), pause_s=0.005, lanes=(1,),
    ),
    "coverable": Shape(
        versioned_keys=(1, 2), keys=(0, 1), writers=(2, 4), readers=(1, 2), steps=(4, 7), deaths=0.3, dies_s=(0.0, 0.3), loss=(0.0, 0.1, 0.3),
        faults=(0, 3), lanes=(1, 1, 2, 3),
    ),
    "files": Shape(
        files=(SHARED,), keys=(0, 0), writers=(2, 3), readers=(1, 1), reconfigurers=(0, 1), reconfigurations=(1, 1), steps=(2, 4), deaths=0.3,
        faults=(0, 3), lanes=(1, 1, 1, 2), pause_s=0.05, collectors=(1, 2), collections=0.1,
    ),
    "atomic": Shape(
        files=(ATOMIC,), keys=(0, 0), writers=(2, 3), readers=(1, 2), reconfigurers=(0, 1), reconfigurations=(1, 1), steps=(2, 5), deaths=0.3,
        faults=(0, 3), lanes=(1, 1, 1, 2), pause_s=0.05, collectors=(1, 2), collections=0.1,
    ),
    "fences": Shape(
        files=(ATOMIC,), removals=0.05, keys=(0, 0), servers=(3, 3), daps=("abd",), writers=(2, 3), readers=(0, 1), reconfigurers=(0, 0),
        collectors=(2, 3), steps=(3, 6), deaths=0.7, dies_s=(0.02, 0.3), faults=(0, 0), loss=(0.0, 0.1), tail=(1.05, 1.3), bad_links=(0.0, 0.25),
        pause_s=0.01,
    ),
    "removals": Shape(
        files=(SHARED, ATOMIC), removals=0.2, keys=(0, 0), writers=(2, 3), readers=(1, 1), reconfigurers=(0, 1), reconfigurations=(1, 1),
        steps=(2, 4), deaths=0.2, faults=(0, 2), pause_s=0.05, collectors=(1, 2), collections=0.1,
    ),
    "journal": Shape(
        segment_bytes=(4096, 16_384, 49_152), value_bytes=(0, 100, 2000, 30_000), faults=(4, 10), frail=2,
        kinds=("crash", "crash", "crash", "kill", "kill", "full", "broken", "disk"), sync_s=(0.001, 0.01, 0.05),
        writers=(2, 3), readers=(1, 2), reconfigurers=(0, 1), steps=(4, 8), keys=(1, 3), delta=6,
    ),
    "rot": Shape(
        segment_bytes=(4096, 16_384), value_bytes=(100, 2000, 30_000), sync_s=(0.001, 0.01), frail=1, faults=(4, 9),
        kinds=("rot", "rot", "rot", "crash", "kill"), deaths=0.0, writers=(2, 3), reconfigurers=(0, 1), steps=(4, 8), keys=(2, 5), delta=6,
    ),
    "gone": Shape(
        segment_bytes=(4096, 16_384), value_bytes=(100, 2000, 30_000), sync_s=(0.001, 0.01), frail=1, faults=(3, 7),
        kinds=("gone", "gone", "crash", "kill"), deaths=0.0, writers=(2, 3), reconfigurers=(0, 1), steps=(4, 8), keys=(2, 5), delta=6,
    ),
    "overload": Shape(daps=("ec",), writers=(4, 5), delta=1, reconfigurers=(0, 1), keys=(1, 1)),
}  # fmt: skip
