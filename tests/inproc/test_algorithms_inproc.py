"""The six algorithms of the papers by name, and the driver with their common interface.

See experiments/paper_algorithms.py, experiments/algorithms.py.
"""

import random

import pytest

from ares.client.local_copy import content_of_bytes
from ares.fragment.divide import Sizes
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ObjectNotFound
from experiments.algorithms import open_register
from experiments.paper_algorithms import ALGORITHMS, algorithm

CONFIGURATIONS = {
    "abd": Configuration.abd(["s0", "s1", "s2"]),
    "ec": Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3),
}
NAMES = [known.name for known in ALGORITHMS]
PLAIN, COVERABLE = ["AresABD", "AresEC"], ["CoAresABD", "CoAresEC"]
SIZES = Sizes(1024, 1024, 2048)
CONTENT = random.Random(1).randbytes(50_000)


async def register(cluster, name, domain=None):
    """Open the object with a new client; domain and configuration follow from the primitives."""
    known = algorithm(name)
    domain, wished = domain or f"over {known.dap}", CONFIGURATIONS[known.dap]
    return await open_register(
        cluster.manager(), known, "object", domain, create=wished, sizes=SIZES
    )


def test_names_of_algorithms_tell_their_options():
    assert NAMES == ["AresABD", "CoAresABD", "CoAresABDF", "AresEC", "CoAresEC", "CoAresECF"]
    for known in ALGORITHMS:
        assert algorithm(known.name) is algorithm(known.name.lower()) is known
        assert known.dap == ("ec" if "EC" in known.name else "abd")
        assert known.coverable == known.optimised == known.name.startswith("Co")
        assert known.fragmented == known.name.endswith("F")


@pytest.mark.parametrize("name", ["", "Ares", "AresABDF", "ABD", "CoAresEC F"])
def test_other_names_are_refused_and_the_six_named(name):
    with pytest.raises(BadInput) as caught:
        algorithm(name)
    assert all(known in str(caught.value) for known in NAMES)


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
    assert await other.write(b"theirs") is not algorithm(name).coverable
    assert await other.read() == (b"mine" if algorithm(name).coverable else b"theirs")
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


@pytest.mark.parametrize("suffix", ["", "F"])
async def test_objects_keep_their_algorithms_when_the_primitives_change(cluster, suffix):
    """A domain moves from ABD to EC: CoAresEC(F) reads and covers the writes of CoAresABD(F)."""
    before = await register(cluster, f"CoAresABD{suffix}", "moving")
    assert await before.write(b"replicated")
    await cluster.manager().reconfigure(CONFIGURATIONS["ec"], domain="moving")
    after = await register(cluster, f"CoAresEC{suffix}", "moving")
    assert await after.read() == b"replicated"
    assert await after.write(b"coded")
    assert await before.read() == b"coded"


async def test_a_writer_of_a_file_may_put_something_in_front_of_it(cluster):
    """The writer that made the file knows its first block from that write alone."""
    writer, reader = await register(cluster, "CoAresECF"), await register(cluster, "CoAresECF")
    first = content_of_bytes(CONTENT, SIZES).chunks[0]
    for value in (CONTENT[first.length :], CONTENT):
        assert await writer.write(value)
        assert await reader.read() == value


async def test_an_algorithm_on_the_wrong_primitives_is_refused(cluster):
    await register(cluster, "AresABD", "replicated")
    with pytest.raises(BadInput, match="CoAresEC needs a domain over EC"):
        await register(cluster, "CoAresEC", "replicated")
