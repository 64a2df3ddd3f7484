"""Arguments of the wrong kind: refused by name before any message (ares/client/store.py)."""

from functools import partial

import pytest

import ares
from ares.model.configuration import Configuration
from ares.model.errors import BadInput

ABD = Configuration.abd(["s0", "s1", "s2"])


async def listed(store, prefix):
    return [name async for name in store.list(prefix)]


async def in_file(store, method, *arguments, **named):
    return await getattr((await store.domain("files", create=ABD)).file("f"), method)(
        *arguments, **named
    )


CALLS = {
    "a key is text": [
        lambda store: store.write(5, b""),
        lambda store: store.read(None),
        lambda store: store.delete(b"key"),
        lambda store: store.stat(5),
        lambda store: store.read_versioned(5),
    ],
    "names begin with text": [
        *[partial(listed, prefix=prefix) for prefix in (5, None, b"a")],
        lambda store: store.files(5),
        lambda store: store.files(None),
    ],
    "a timeout is a number": [
        lambda store: store.read("k", timeout_s="5"),
        lambda store: store.files(timeout_s=[1]),
    ],
    "a domain's name is text": [
        lambda store: store.domain(5),
        lambda store: store.domain(b"photos"),
        lambda store: store.create_domain(None),
        lambda store: store.reconfigure(ABD, domain=5),
    ],
    "a configuration is made by": [
        lambda store: store.domain("photos", create="abd"),
        lambda store: store.create_domain("photos", "abd"),
        lambda store: store.reconfigure("abd"),
        lambda store: store.reconfigure(None),
        lambda store: store.file("new", create="abd").write(b"x"),
    ],
    "a version is a Tag": [
        lambda store: store.write_versioned("k", b"", "v"),
        lambda store: store.write_versioned("k", b"", 5),
    ],
    "progress is a function": [
        lambda store: store.reconfigure(ABD, progress=5),
        lambda store: in_file(store, "write", b"x", progress=5),
    ],
    "a local file is named": [
        lambda store: in_file(store, "read_into", 5),
        lambda store: in_file(store, "read_into", b"/path"),
    ],
    "a range is of a FileState": [
        lambda store: in_file(store, "read_range", "state", 0, 1),
        lambda store: in_file(store, "read_range", None, 0, 1),
    ],
    "a whole number of seconds": [
        partial(in_file, method="collect", grace_s=grace_s) for grace_s in ("1h", -1, 1.5, None)
    ],
    "a file.s content is bytes": [
        partial(in_file, method="write", data=data) for data in (5, None, [1])
    ],
}


@pytest.mark.parametrize(
    ("why", "call"), [(why, call) for why, calls in CALLS.items() for call in calls]
)
async def test_awaited_calls_refuse_bad_arguments(cluster, why, call):
    store = cluster.manager()
    await in_file(store, "write", b"content")
    with pytest.raises(BadInput, match=why):
        await call(store)
    assert await listed(store, "") == []
    assert store.configuration.index == 0


@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("a list of their ids", lambda: ares.Configuration.abd("s0,s1,s2")),
        ("a list of their ids", lambda: ares.Configuration.abd(5)),
        ("a list of their ids", lambda: ares.Configuration.ec(None, 1)),
        ("a server is named by its id", lambda: ares.Configuration.abd([0, 1, 2])),
        ("k is a whole number, not '2'", lambda: ares.Configuration.ec(["s0", "s1", "s2"], "2")),
        ("k is a whole number, not 1.5", lambda: ares.Configuration.ec(["s0", "s1", "s2"], 1.5)),
        (
            "delta is a whole number, not None",
            lambda: ares.Configuration.ec(["s0", "s1", "s2"], 1, None),
        ),
        ("block sizes are whole numbers", lambda: ares.Sizes("a", "b", "c")),
        ("block sizes are whole numbers", lambda: ares.Sizes(64.5, 300.0, 2000)),
        ("named by the path of its file, not by NoneType", lambda: ares.connect(None)),
        ("named by the path of its file, not by bytes", lambda: ares.connect(b"cluster.toml")),
        ("named by the path of its file, not by int", lambda: ares.connect_blocking(5)),
        ("a key is named by the path", lambda: ares.connect("cluster.toml", key=5)),
    ],
)
def test_plain_calls_refuse_bad_arguments(why, make):
    with pytest.raises(BadInput, match=why):
        make()


@pytest.mark.parametrize("more", [{"sizes": 5}, {"atomic": "no"}])
async def test_what_a_file_is_made_with(cluster, more):
    with pytest.raises(BadInput, match="a file is atomic or not"):
        cluster.manager().file("f", **more)
