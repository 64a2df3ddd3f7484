"""Kafka: three servers that are brokers and controllers (KRaft).

A topic has a single partition and three replicas, and each replica flushes a message to disk before
the acknowledgement (acks=all). Debian has no package of Kafka. The jars come from Maven Central,
once, into a cache: `missing` says how. The client is aiokafka.
"""

import contextlib
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from experiments.bench.store_clients import Coroutines
from experiments.bench.store_processes import ProgramNotStarted, free_ports, programs

KAFKA_SERVERS = 3
TOPIC = "measured"
KAFKA_START_S = 90.0
CLUSTER = "AAAAAAAAQACAAAAAAAAAAA"
"""An identity as Kafka writes them: 16 bytes in base64."""

_JAVA = ["-Xmx512m", "-XX:+UseG1GC", "-Djava.net.preferIPv4Stack=true"]
_POM = Path(__file__).with_name("kafka-pom.xml")


def jars() -> Path:
    """Return the directory of the jars."""
    return Path.home() / ".cache" / "ares" / "kafka-4.1.0"


def missing() -> str | None:
    """Return the missing software, and how to get it."""
    if not any(jars().glob("kafka_2.13-*.jar")):
        command = f"mvn -q -f {_POM} dependency:copy-dependencies -DoutputDirectory={jars()}"
        return f"Kafka is not here: {command}"
    if shutil.which("java") is None:
        return "Kafka needs Java: sudo apt-get install default-jre-headless"
    if importlib.util.find_spec("aiokafka") is None:
        return "Kafka needs its Python client: pip install aiokafka"
    return None


@contextlib.contextmanager
def running(directory: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Run the servers; yield their addresses, with commas, and their pids."""
    free = free_ports(2 * KAFKA_SERVERS)
    ports, voting = free[:KAFKA_SERVERS], free[KAFKA_SERVERS:]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(voting))
    java = ["java", *_JAVA, "-cp", f"{jars()}/*"]
    commands: dict[str, list[str]] = {}
    for number, (port, voter) in enumerate(zip(ports, voting, strict=True)):
        file = directory / f"k{number}.properties"
        properties = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{voter}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": directory / f"k{number}",
            "log.flush.interval.messages": 1,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": KAFKA_SERVERS,
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(file)]
        made = subprocess.run([*java, *words], capture_output=True, text=True)
        if made.returncode:
            why = (made.stderr or made.stdout)[-500:]
            raise ProgramNotStarted(f"Kafka could not format {directory}: {why}")
        commands[f"k{number}"] = [*java, "kafka.Kafka", str(file)]
    with programs(directory, commands, ready=(b"Kafka Server started", KAFKA_START_S)) as servers:
        yield ",".join(f"127.0.0.1:{port}" for port in ports), servers


class KafkaLog:
    """A topic as a log with a single producer."""

    def __init__(self, producer: "AIOKafkaProducer") -> None:  # type: ignore[name-defined]  # noqa: F821
        self._producer = producer

    async def read(self, key: str) -> bytes | None:
        """Refuse reads, which this measurement does not use."""
        raise RuntimeError(f"{key} is not read")

    async def write(self, _key: str, value: bytes) -> object:
        """Append to the topic, and return the entry's number."""
        return (await self._producer.send_and_wait(TOPIC, value, partition=0)).offset


async def kafka_clients(addresses: str) -> Coroutines:
    """Return clients that share a producer, once the topic exists."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.errors import KafkaError, TopicAlreadyExistsError

    admin = AIOKafkaAdminClient(bootstrap_servers=addresses)
    await admin.start()
    try:
        with contextlib.suppress(TopicAlreadyExistsError):
            await admin.create_topics([NewTopic(TOPIC, 1, KAFKA_SERVERS)])
    finally:
        await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=addresses, acks="all")
    await producer.start()
    return Coroutines(KafkaLog(producer), (KafkaError,), producer.stop)
