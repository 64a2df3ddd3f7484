"""The work of a load round on a client host: points of load at a single store.

The points go from few clients to a number at which throughput stops growing. Every store gets the
same requests: keys of 24 bytes, chosen evenly. The answer to a read of a key without a value says
that no value exists, with the messages of any other read. Single operations are not logged; the
points are in `load.json` (ares/results/load_points.py).
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.platform.loop import run
from ares.results.load_points import LoadFile, LoadPoint
from experiments.bench.etcd_leader import leads
from experiments.bench.load import Generators, LoadExtent, MeasuredWorkload, generators
from experiments.bench.measured_points import goes_on, point_of, write_load
from experiments.bench.store_clients import AresStore, EtcdStore, Store
from experiments.bench.workload import Workload, size_text
from experiments.rounds.ares_protocols import (
    ALGORITHM_OF,
    algorithm_name,
    configuration_of,
    published_algorithm,
)
from experiments.rounds.scenario import LoadSeries, Parameters

LOAD_WARM_S = 0.2
WARM_UP_S = 0.5


def prepare_load(store: Store, protocol: str, parameters: Parameters) -> None:
    """Write the initial keys before a load round's work. Raises :class:`BenchError` on failure."""
    load = parameters.load
    assert load is not None
    if isinstance(store, AresStore) and not parameters.published:
        run(_make_domain(store, protocol, parameters))
    with generators(1) as processes:
        processes.preload_once(_store_of(store, protocol, parameters), _workload(load, parameters))


def make_load(
    store: Store,
    protocol: str,
    parameters: Parameters,
    await_begin: Callable[[], object],
    directory: Path,
) -> None:
    """Measure all points after ``await_begin``; write `load.json`. Raises :class:`BenchError`."""
    load, share = parameters.load, parameters.read_share
    assert load is not None
    with generators(load.processes) as processes:
        points = _Points(processes, _store_of(store, protocol, parameters), load, parameters)
        points.warm_up()
        await_begin()
        made = list(points.all(with_curve=parameters.bad != "nobody"))
    alone = {1.0: "reads only", 0.0: "writes only"}
    words = f"{size_text(parameters.object_size)}, {alone.get(share, f'{share:.0%} reads')}"
    name = algorithm_name(protocol, parameters.published)
    write_load(directory, LoadFile(made, name, words, wrong=points.wrong))


def _store_of(store: Store, protocol: str, parameters: Parameters) -> Store:
    """Return the store as the protocol uses it: clients of etcd talk to the leader."""
    if isinstance(store, EtcdStore):
        return EtcdStore(tuple(sorted(store.endpoints, key=lambda endpoint: not leads(endpoint))))
    if not isinstance(store, AresStore):
        return store
    if published := parameters.published:
        algorithm = published_algorithm(protocol, published, parameters.switches)
        return structs.replace(store, published=algorithm)
    fast_read = protocol != "ABD" and "fast_read" in parameters.switches
    return structs.replace(
        store,
        domain=_domain(protocol),
        fast_read=fast_read,
        piggyback=protocol == "ABD" or "piggyback" in parameters.switches,
    )


def _workload(load: LoadSeries, own: Parameters) -> Workload:
    return Workload(load.clients, own.object_size, load.keys, own.read_share, load.written)


def _domain(protocol: str) -> str:
    return f"load-{protocol}"


async def _make_domain(store: AresStore, protocol: str, parameters: Parameters) -> None:
    """Make the domain of this load, over the protocol's primitives."""
    settings = Settings.load(store.file)
    servers = [str(server) for server in settings.servers]
    create = configuration_of(ALGORITHM_OF[protocol].dap, servers, parameters.parity)
    async with connect(settings) as manager:
        await manager.domain(_domain(protocol), create=create)


class _Points:
    def __init__(
        self, processes: Generators, store: Store, load: LoadSeries, parameters: Parameters
    ) -> None:
        self._processes, self._store, self._load = processes, store, load
        self._workload = _workload(load, parameters)
        self._processes.assume_preloaded(self._workload)
        self.wrong: list[str] = []

    def warm_up(self) -> None:
        """Run all clients for a moment, uncounted."""
        clients = min(16, self._load.clients_max)
        workload = structs.replace(self._workload, clients=clients)
        self._measure(workload, LoadExtent(LOAD_WARM_S, WARM_UP_S))

    def all(self, *, with_curve: bool) -> Iterator[LoadPoint]:
        """Measure closed loops, and open loops after them."""
        load, workload, rates = self._load, self._workload, list[float]()
        extent = LoadExtent(LOAD_WARM_S, load.seconds, operations=load.operations)
        while True:
            measured = self._measure(workload, extent)
            yield point_of(measured, workload, curve=with_curve)
            rates.append(measured.per_s)
            if 2 * workload.clients > load.clients_max or not goes_on(rates, load.growth):
                break
            workload = structs.replace(workload, clients=2 * workload.clients)
        workload = structs.replace(workload, clients=load.clients_max)
        for share in load.offered if max(rates) > 0 else ():
            per_s = share * max(rates)
            seconds = max(min(load.seconds, load.operations / per_s), 2 * LOAD_WARM_S)
            measured = self._measure(workload, LoadExtent(LOAD_WARM_S, seconds, per_s=per_s))
            yield point_of(measured, workload, offered_per_s=per_s)

    def _measure(self, workload: Workload, extent: LoadExtent) -> MeasuredWorkload:
        measured = self._processes.run(self._store, workload, extent, {})
        self.wrong += measured.wrong
        return measured
