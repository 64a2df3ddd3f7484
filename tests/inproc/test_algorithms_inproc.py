"""The six algorithms of the papers by name, and the driver with their common interface.

See experiments/rounds/ares_protocols.py, experiments/algorithms.py.
"""

import random

import pytest

from ares.client.local_copy import content_of_bytes
from ares.fragment.divide import Sizes
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ObjectNotFound
from experiments.algorithms import open_register
from experiments.rounds.ares_protocols import ALGORITHM_OF

CONFIGURATIONS = {
    "abd": Configuration.abd(["s0", "s1", "s2"]),
    "ec": Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3),
}
NAMES = ["ARES_ABD", "COARES_ABD", "COARES_ABD_F", "ARES_EC", "COARES_EC", "COARES_EC_F"]
PLAIN, COVERABLE = ["ARES_ABD", "ARES_EC"], ["COARES_ABD", "COARES_EC"]
SIZES = Sizes(1024, 1024, 2048)
CONTENT = random.Random(1).randbytes(50_000)


async def register(cluster, name, domain=None):
    """Open the object with a new client; domain and configuration follow from the primitives."""
    known = ALGORITHM_OF[name]
    domain, wished = domain or f"over {known.dap}", CONFIGURATIONS[known.dap]
    return await open_register(
        cluster.manager(), known, "object", domain, create=wished, sizes=SIZES
    )


def test_names_of_algorithms_tell_their_options():
    for protocol, known in ALGORITHM_OF.items():
        assert known.dap == ("ec" if "EC" in protocol else "abd")
        assert known.coverable == protocol.startswith("CO") == known.name.startswith("Co")
        assert known.fragmented == protocol.endswith("_F") == known.name.endswith("F")


@pytest.mark.parametrize("name", NAMES)
async def test_what_one_client_writes_another_one_reads(cluster, name):
    writer, reader = await register(cluster, name), await register(cluster, name)
    with pytest.raises(ObjectNotFound):
        await reader.read()
    for value in (
        b"first",
        b"",
        CONTENT,
        CONTENT[:20_000] + b"!" + CONTENT[20_000:],
        b"in front" * 1000 + CONTENT,
    ):
        assert await writer.write(value)
        assert await reader.read() == value
        assert await reader.read() == value
        assert await writer.read() == value


@pytest.mark.parametrize("name", NAMES)
async def test_whether_a_write_covers_what_it_does_not_know(cluster, name):
    """A plain write does; a coverable write becomes a read, and the next write does."""
    one, other = await register(cluster, name), await register(cluster, name)
    assert await one.write(b"begin")
    assert await other.read() == b"begin"
    assert await one.write(b"mine")
    assert await other.write(b"theirs") is not ALGORITHM_OF[name].coverable
    assert await other.read() == (b"mine" if ALGORITHM_OF[name].coverable else b"theirs")
    assert await other.write(b"after")
    assert await one.read() == b"after"


@pytest.mark.parametrize(("plain", "coverable"), list(zip(PLAIN, COVERABLE, strict=True)))
async def test_ares_and_coares_share_registers(cluster, plain, coverable):
    plain, coverable = await register(cluster, plain), await register(cluster, coverable)
    assert await plain.write(b"from Ares")
    assert not await coverable.write(b"over nothing")
    assert await coverable.read() == b"from Ares"
    assert await coverable.write(b"from CoAres")
    assert await plain.read() == b"from CoAres"


@pytest.mark.parametrize("suffix", ["", "_F"])
async def test_objects_keep_their_algorithms_when_the_primitives_change(cluster, suffix):
    """A domain moves from ABD to EC: CoAresEC(F) reads and covers the writes of CoAresABD(F)."""
    before = await register(cluster, f"COARES_ABD{suffix}", "moving")
    assert await before.write(b"replicated")
    await cluster.manager().reconfigure(CONFIGURATIONS["ec"], domain="moving")
    after = await register(cluster, f"COARES_EC{suffix}", "moving")
    assert await after.read() == b"replicated"
    assert await after.write(b"coded")
    assert await before.read() == b"coded"


async def test_a_writer_of_a_file_may_put_something_in_front_of_it(cluster):
    """The writer that made the file knows its first block from that write alone."""
    writer, reader = await register(cluster, "COARES_EC_F"), await register(cluster, "COARES_EC_F")
    first = content_of_bytes(CONTENT, SIZES).chunks[0]
    for value in (CONTENT[first.length :], CONTENT):
        assert await writer.write(value)
        assert await reader.read() == value


async def test_an_algorithm_on_the_wrong_primitives_is_refused(cluster):
    await register(cluster, "ARES_ABD", "replicated")
    with pytest.raises(BadInput, match="CoAresEC needs a domain over EC"):
        await register(cluster, "COARES_EC", "replicated")
