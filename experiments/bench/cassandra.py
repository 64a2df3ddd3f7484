"""Cassandra: three nodes, replication factor 3, reads and writes at QUORUM. Its timestamps decide between writes, so it is no atomic register.

Debian has no package of it. Its jars come from Maven Central; they are looked for in the directory that ARES_BENCH_CASSANDRA names, or ~/.cache.
"""

import contextlib
import importlib.util
import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from experiments.bench.peers import Durability, Running
from experiments.bench.processes import await_that, free_ports, installed, programs
from experiments.bench.stores import CassandraStore

NODES = 3
START_S = 120.0
HEAP = "1g"
KEYSPACE = "bench"
VARIABLE = "ARES_BENCH_CASSANDRA"
POM = Path(__file__).with_name("cassandra-pom.xml")

_OPENED = (
    *(f"java.base/{name}" for name in ("java.io", "java.lang", "java.lang.module", "java.lang.reflect", "java.math", "java.net", "java.nio")),
    *(f"java.base/{name}" for name in ("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch")),
    *(f"java.base/jdk.internal.{name}" for name in ("loader", "ref", "reflect", "math", "module", "util.jar", "misc")),
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
)
_EXPORTED = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/java.lang.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_YAML = """\
cluster_name: bench
num_tokens: 1
initial_token: {token}
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [{directory}/data]
commitlog_directory: {directory}/commitlog
saved_caches_directory: {directory}/caches
hints_directory: {directory}/hints
cdc_raw_directory: {directory}/cdc
{commitlog}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{seed}"}}]
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage}
ssl_storage_port: {ssl}
native_transport_port: {native}
start_native_transport: true
endpoint_snitch: SimpleSnitch
memtable_allocation_type: heap_buffers
commitlog_segment_size: 64MiB
max_mutation_size: 32MiB
native_transport_max_frame_size: 32MiB
"""
_COMMITLOG: dict[Durability, str] = {
    "memory": "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms",
    "fsync": "commitlog_sync: batch",
}


def jars() -> Path:
    """Where the jars are to be."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "ares-bench-cassandra")


class Cassandra(Struct, frozen=True):
    """``durability`` "memory" is its default: the commit log is synced every ten seconds."""

    name: str = "cassandra"
    durability: Durability = "memory"
    note: str = "three nodes, QUORUM; concurrent writes are ordered by the clocks of its clients; DataStax's Python driver"
    value_bytes_max: int | None = 16 * 1024 * 1024
    fails_over: bool = True
    warm_up_s: float = 15.0

    def missing(self) -> str | None:
        """Java, jars and driver, one after the other."""
        if not installed("java"):
            return "cassandra needs Java: sudo apt-get install openjdk-17-jre-headless"
        if not any(jars().glob("cassandra-all-*.jar")):
            how = f"sudo apt-get install maven, then mvn -f {POM} dependency:copy-dependencies -DoutputDirectory={jars()}"
            return f"cassandra's jars are not in {jars()} (or where {VARIABLE} points to): {how}"
        if importlib.util.find_spec("cassandra") is None:
            return "cassandra needs its Python driver: pip install 'ares-storage[bench]'"
        return None

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        """Serves when every node speaks to clients and knows the others."""
        ports = free_ports(4 * NODES)
        commands = {f"c{number}": self._command(directory, number, ports) for number in range(NODES)}
        natives = [ports[4 * number + 2] for number in range(NODES)]
        with contextlib.ExitStack() as stack:
            servers: dict[str, int] = {}
            for number, (name, command) in enumerate(commands.items()):  # one after the other: they agree on who there is
                servers |= stack.enter_context(programs(directory, {name: command}))
                await_that(partial(_listens, natives[number]), f"that {name} of Cassandra serves", START_S, directory / f"{name}.log")
            from experiments.bench.cassandra_client import make_table

            make_table(natives, KEYSPACE, NODES)
            yield Running(CassandraStore(tuple(("127.0.0.1", port) for port in natives), KEYSPACE), servers, replica="c2")

    def _command(self, directory: Path, number: int, ports: list[int]) -> list[str]:
        home = directory / f"c{number}"
        home.mkdir()
        storage, ssl, native, jmx = ports[4 * number : 4 * number + 4]
        token = -(2**63) + 2**64 // NODES * number
        yaml = _YAML.format(
            token=token,
            directory=home,
            seed=ports[0],
            storage=storage,
            ssl=ssl,
            native=native,
            commitlog=_COMMITLOG[self.durability],
        )
        (home / "cassandra.yaml").write_text(yaml)
        properties = {
            "cassandra.config": f"file://{home}/cassandra.yaml",
            "cassandra.storagedir": home,
            "cassandra.logdir": home,
            "cassandra.jmx.local.port": jmx,
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.ring_delay_ms": 2000,
            "cassandra-foreground": "yes",
            "jdk.attach.allowAttachSelf": "true",
            "java.awt.headless": "true",
            "io.netty.tryReflectionSetAccessible": "true",
        }
        flags = [f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseG1GC", *(f"-D{key}={value}" for key, value in properties.items())]
        flags += [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED] + [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTED]
        return ["java", *flags, "-cp", f"{home}:{jars()}/*", "org.apache.cassandra.service.CassandraDaemon"]


CASSANDRA: tuple[Cassandra, ...] = (Cassandra(), Cassandra("cassandra-fsync", durability="fsync"))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
