"""A runner of rounds: sequentially, by the six playbooks on the hosts of a testbed.

RESULTS/SCENARIO/ROUND has the logs by host, `run.json` (description and origin of the round),
`inventory.json` (the hosts, as the playbooks got them), `events.jsonl` and, at the end,
`outcome.json`. The remains of a failed round go under RESULTS/failed, and the next run with
--resume repeats the round.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ares.cluster.home import held
from ares.model.configuration import DELTA_MAX
from ares.model.errors import AresError, BadInput
from ares.model.identity import VALUE_BYTES_MAX
from ares.model.units import MIB
from experiments.bench.cassandra_peer import SMALL_HEAP, Cassandra
from experiments.bench.etcd_peer import Etcd
from experiments.bench.peers import Peer
from experiments.bench.redis_peer import Redis
from experiments.rounds.after_moves import not_fresh
from experiments.rounds.ares_protocols import algorithm_name, is_coded, why_untranscribed
from experiments.rounds.correctness import WRONG, checked
from experiments.rounds.layout import (
    Layout,
    check_private,
    cluster_file_of,
    inventory_of,
    memory_bytes_of,
    placed,
    store_name,
    value_bytes_of,
)
from experiments.rounds.load_faults import judge_load
from experiments.rounds.playbook_runs import RoundFailed, play
from experiments.rounds.provenance import provenance, version_of, write_json
from experiments.rounds.round_faults import RoundFaults
from experiments.rounds.round_testbeds import MADE, RoundTestbed, RoundTestbeds
from experiments.rounds.scenario import OF_ARES, Parameters, ScenarioRound
from experiments.rounds.server_bytes import note_counted

WORK_SPARE = 4.0
WORK_SPARE_S = 60.0
"""Seconds added to the time limit of the work, which is a multiple of the expected time."""

STEPS_S = 600.0
"""Time limit of the steps around the work."""

MADE_HEAD_START_S = 2.0
"""Seconds until the work begins if all hosts are this machine.

The clients are ready within a second and a half.
"""

LOAD_HEAD_START_S, LOAD_HEAD_START_MAX_S = 2.5, 50.0
"""Seconds in which the processes of a load connect and warm up before a fault.

A busy machine takes longer.
"""

MEMORY_SHARE = 0.9
"""Share of this machine's memory that values may take."""

ReportText = Callable[[str], None]


class RoundOutcome(Struct):
    """The outcome of a round: ``error`` is empty after success. ``note`` is for readers."""

    error: str
    seconds: float
    note: str = ""


def playbooks_of(protocol: str, reserved: bool = False) -> list[str]:
    """Return the steps of a round; stores other than ares have separate first two steps."""
    suffix = "" if (store := store_name(protocol)) == "ares" else f"_{store}"
    steps = [f"round_1_reset{suffix}", f"round_2_create{suffix}", "round_3_work"]
    steps += ["round_4_wait", "round_5_read", "round_6_fetch"]
    return ["round_program", *steps] if reserved else steps


def _peer_of(round: ScenarioRound) -> Peer | None:
    """Return the description of a store that is compared with ares."""
    n = round.parameters.servers
    peers = (Etcd(n=n), Cassandra(n=n, heap=SMALL_HEAP), Redis("redis", n=n))
    return next((peer for peer in peers if peer.name == store_name(round.protocol)), None)


def why_not(round: ScenarioRound, testbed: str) -> str | None:
    """Return why the round is impossible on such a testbed, or `None`."""
    return next(_obstacles(round, testbed), None)


def _obstacles(round: ScenarioRound, testbed: str) -> Iterator[str]:
    """Yield why the round is impossible on such a testbed."""
    peer, own, made = _peer_of(round), round.parameters, testbed in MADE
    if peer is not None:
        largest, size = peer.value_bytes_max, own.object_size
        if largest is not None and size > largest:
            yield f"{peer.name} takes values of {largest} bytes at most, and {size} are asked for"
        if made and (why := peer.missing()):
            yield why
        if own.bad == "killed leader" and not peer.fails_over:
            yield f"no server takes over from the leader of {peer.name}"
    if (why := _too_large(round)) is not None:
        yield why
    if made and (why := _too_much(round)) is not None:
        yield why
    why = why_untranscribed(round.protocol, own.published, own.switches, own.reconfigurers)
    if why is not None:
        yield f"published = {own.published!r}: {why}"
    if own.pending and not own.published:
        yield (
            "a reconfigurer of today's ares finishes each move that it finds: pending moves need "
            "an algorithm as published"
        )
    if own.pending and not own.fresh_after_s:
        yield "pending moves come before all reads: say when reads begin, by fresh_after_s"
    if own.rate_mbit and testbed != "local":
        yield f"testbed {testbed} limits no rate: testbed local does"
    if testbed == "processes" and own.placement:
        yield "servers at several sites need hosts with networks of their own: testbed local"
    refused = {"local": set[str](), "processes": {"fill", "free", "cut", "join"}}
    lacking = refused.get(testbed, {"fill", "free", "cut", "join", "slow"})
    if others := {fault.event for fault in round.faults} & lacking:
        yield f"testbed {testbed} does not {' or '.join(sorted(others))}: testbed local does"


def _too_large(round: ScenarioRound) -> str | None:
    """Return that a value of ares, or a List, would be larger than it may be, or `None`."""
    if round.protocol not in OF_ARES:
        return None
    own, largest = round.parameters, value_bytes_of(round)
    published = f"published = {own.published!r}"
    if own.published and is_coded(round.protocol) and own.delta > DELTA_MAX:
        return f"{published}: {own.delta} clients write at once, and delta is {DELTA_MAX} at most"
    if largest <= VALUE_BYTES_MAX:
        return None
    if largest <= own.object_size or not own.published:
        return f"a value of ares has at most {VALUE_BYTES_MAX} bytes, and {largest} are asked for"
    return (
        f"{published}: a server sends its whole List, {own.delta + 1} elements of {largest} bytes "
        f"in all, and a reply has at most {VALUE_BYTES_MAX}"
    )


def _too_much(round: ScenarioRound) -> str | None:
    """Return that the values of ares would not fit into this machine, or `None`."""
    held = memory_bytes_of(round) if round.protocol in OF_ARES else 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if held <= MEMORY_SHARE * memory:
        return None
    return (
        f"servers and readers would hold {held // MIB:,} MiB of values at once, and this machine "
        f"has {memory // MIB:,}"
    )


class _Described(Struct):
    """The part of `run.json` with the settings of a round, and what was found about it."""

    parameters: dict[str, Any]


class Engine:
    """A runner of rounds.

    Results go to ``results``, where only a single engine works at a time. ``report_line`` gets a
    line for each round.
    """

    def __init__(
        self,
        results: Path,
        seed: int,
        report_line: ReportText,
        testbed: str = "processes",
        inventory: Path | None = None,
        per_host: int = 250,
    ) -> None:
        self._results = results
        self._seed = seed
        self._report_line = report_line
        self._testbed, self._inventory, self._per_host = testbed, inventory, per_host
        self._provenance = provenance(testbed, seed)
        self._place = results.resolve() / ".ansible"
        self._last: Path | None = None
        """Inventory of the round that began last."""

    def run(self, rounds: Sequence[ScenarioRound], resume: bool) -> list[str]:
        """Run all rounds, and return the names of failed rounds.

        Raises :class:`BadInput` if some results exist already, unless ``resume`` is set; and then
        for a round that was done with other settings.
        """
        try:
            self._results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"{self._results} is no directory, and none can be made there: {error.strerror}; "
                "nothing was begun"
            ) from None
        with held(self._results):
            done = [round for round in rounds if (self._directory(round) / "outcome.json").exists()]
            if done and not resume:
                raise BadInput(
                    f"{self._results} has {len(done)} of these {len(rounds)} rounds already: "
                    "--resume goes on, or choose another --results"
                )
            for round in done:
                self._require_settings(round)
            todo = self._possible([round for round in rounds if round not in done])
            if not todo:
                return []
            hosts = (self._place, self._inventory, self._per_host)
            beds = RoundTestbeds(self._testbed, todo, *hosts)
            try:
                beds.bed()  # if no testbed is possible, no round begins
                return self._all(todo, beds)
            finally:
                self._end()
                beds.close()

    def _require_settings(self, round: ScenarioRound) -> None:
        """Raise :class:`BadInput` if the round of this name was done with other settings."""
        directory = self._directory(round)
        try:
            described = msgspec.json.decode((directory / "run.json").read_bytes(), type=_Described)
            own = described.parameters.keys() & set(Parameters.__struct_fields__)
            kept = msgspec.convert({name: described.parameters[name] for name in own}, Parameters)
        except (OSError, msgspec.MsgspecError) as error:
            why = f"has an outcome, and no run.json that can be read: {error}"
            raise BadInput(f"{directory} {why}") from error
        before, now = msgspec.structs.asdict(kept), msgspec.structs.asdict(round.parameters)
        changed = (name for name in now if before[name] != now[name])
        other = [f"{name} {before[name]} instead of {now[name]}" for name in changed]
        if other:
            raise BadInput(
                f"{directory} was made with other settings ({', '.join(other)}), and a result "
                "would mix both: remove it, or choose another --results"
            )

    def _possible(self, rounds: Sequence[ScenarioRound]) -> list[ScenarioRound]:
        """Return the rounds that this testbed can run; report each impossible kind once."""
        obstacles = [why_not(round, self._testbed) for round in rounds]
        for why in dict.fromkeys(filter(None, obstacles)):
            self._report_line(f"left out: {why}")
        return [round for round, why in zip(rounds, obstacles, strict=True) if why is None]

    def _all(self, rounds: Sequence[ScenarioRound], beds: RoundTestbeds) -> list[str]:
        failed: list[str] = []
        expected_s = took_s = 0.0
        for number, round in enumerate(rounds, 1):
            outcome, name = self._carry_out(round, beds), f"{round.scenario}/{round.name}"
            told = ", ".join(filter(None, (f"{outcome.seconds:.1f} s", outcome.note)))
            if outcome.error:
                failed.append(name)
                told = f"FAILED: {outcome.error}"
            else:
                expected_s, took_s = expected_s + round.expected_s, took_s + outcome.seconds
            pace = took_s / expected_s if expected_s else 1.0
            left_s = pace * sum(other.expected_s for other in rounds[number:])
            left = f"about {left_s / 60:.0f} min left"
            self._report_line(f"[{number}/{len(rounds)}] {name}: {told}; {left}")
        return failed

    def _end(self) -> None:
        """End the remains of the last round on machines that stay."""
        if self._testbed not in MADE and self._last is not None and self._last.exists():
            # if the host is gone, the next round on the host ends the remains
            with contextlib.suppress(RoundFailed):
                play(["round_end"], self._last, self._place, STEPS_S)

    def _directory(self, round: ScenarioRound) -> Path:
        return self._results / round.scenario / round.name

    def _carry_out(self, round: ScenarioRound, beds: RoundTestbeds) -> RoundOutcome:
        directory, begin = self._directory(round), time.monotonic()
        try:
            _make_way(directory)
            self._last = directory / "inventory.json"
            one = _OneRound(round, beds.bed(), directory, self._seed + 1000 * round.iteration)
            note = one.run(self._provenance)
            outcome = RoundOutcome("", time.monotonic() - begin, note)
            (directory / "outcome.json").write_bytes(msgspec.json.encode(outcome))
        except (AresError, OSError) as error:
            reason = str(error)
            if isinstance(error, OSError):
                where = error.filename or directory
                reason = f"this machine cannot write {where}: {error.strerror or error}"
            if isinstance(error, RoundFailed) and error.unreachable:
                beds.discard()
            outcome = RoundOutcome(reason, time.monotonic() - begin)
            with contextlib.suppress(OSError):  # a full disk, which is told
                (directory / "failure.json").write_bytes(msgspec.json.encode(outcome))
            with contextlib.suppress(OSError):
                aside = _free_name(directory)
                directory.rename(aside)
                self._last = aside / "inventory.json"
        return outcome


def _make_way(directory: Path) -> None:
    """Move the results that a killed engine left here aside; no measurement is overwritten."""
    if directory.exists():
        directory.rename(_free_name(directory))
    directory.mkdir(parents=True)


def _free_name(directory: Path) -> Path:
    """Return a free name in the directory of failed rounds, which imports of results ignore."""
    aside = directory.parent.parent / "failed" / directory.parent.name
    aside.mkdir(parents=True, exist_ok=True)
    names = (aside / f"{directory.name}.{number}" for number in itertools.count(1))
    return next(path for path in names if not path.exists())


class _OneRound:
    """A round in progress.

    ``directory`` is for the results. ``seed`` is the clients' seed; `run.json` has it, because the
    object's first value follows from the seed (correctness.py).
    """

    def __init__(self, round: ScenarioRound, bed: RoundTestbed, directory: Path, seed: int) -> None:
        self._round, self._bed, self._directory, self._seed = round, bed, directory.resolve(), seed
        self._place = self._directory.parent.parent / ".ansible"
        self._inventory = self._directory / "inventory.json"

    def run(self, provenance: dict[str, object]) -> str:
        """Run all steps, and return a note for readers, or an empty text.

        Raises :class:`RoundFailed`, BadInput if hosts are missing, OSError.
        """
        bed, round, directory = self._bed, self._round, self._directory
        layout, parameters = placed(round, bed.hosts), round.parameters
        check_private(round.protocol, [bed.hosts[server] for server in layout.servers])
        steps = playbooks_of(round.protocol, bed.name not in MADE)
        timeout_s = WORK_SPARE * parameters.work_s + WORK_SPARE_S
        places, variables = bed.directories(), self._variables(timeout_s)
        inventory = inventory_of(round, layout, bed.hosts, places, variables, self._seed)
        write_json(self._inventory, inventory)
        write_json(directory / "run.json", self._description(layout, provenance))
        events = directory / "events.jsonl"
        befalling = RoundFaults(round, layout, bed.testbed, bed.hosts, events)
        try:
            with self._links(layout), befalling.lasting():
                heard, limit_s = partial(_heard, befalling), timeout_s + STEPS_S
                play(steps, self._inventory, self._place, limit_s, heard)
        except RoundFailed:
            self._salvage(steps)
            raise
        befalling.require_done()
        note_counted(directory)
        for path in directory.glob("logs/*/load.json"):
            path.rename(directory / "load.json")
        if parameters.load:
            wrong = judge_load(directory, parameters)
        else:
            wrong = checked(directory) or not_fresh(directory, parameters)
        if wrong is not None:
            raise RoundFailed(wrong)
        described = msgspec.json.decode((directory / "run.json").read_bytes())
        verdict = str(described["parameters"].get("checked", ""))
        return verdict if verdict.startswith(WRONG) else ""

    def _variables(self, timeout_s: float) -> dict[str, Any]:
        made = {
            "round_results": str(self._directory),
            "round_name": "round",
            "round_timeout_s": timeout_s,
            "round_durability": self._round.parameters.durability,
        }
        if self._bed.name in MADE:
            made["round_head_start_s"] = MADE_HEAD_START_S
        if self._round.parameters.bad != "nobody":
            late_s = LOAD_HEAD_START_S * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))
            made["round_head_start_s"] = min(late_s, LOAD_HEAD_START_MAX_S)
        return {**self._bed.variables, **made, **cluster_file_of(self._round)}

    def _description(self, layout: Layout, provenance: dict[str, object]) -> dict[str, Any]:
        own, protocol = self._round.parameters, self._round.protocol
        versions = dict(provenance["versions"])  # type: ignore[call-overload]
        if (store := store_name(protocol)) != "ares":
            versions[store] = version_of(store)
        counts = ("servers", "writers", "readers", "reconfigurers", "object_size")
        topology = f"{own.placement} w={own.client_site} r={own.client_site}"
        of_round = {
            "seed": self._seed,
            "began": datetime.now(UTC).isoformat(),
            "versions": versions,
            "hosts": msgspec.to_builtins(layout),
        }
        described = {
            "scenario": self._round.scenario,
            "algorithm": algorithm_name(protocol, own.published),
            **{name: getattr(own, name) for name in counts},
            "topology": topology if own.placement else None,
            "iteration": self._round.iteration,
            "parameters": msgspec.to_builtins(own),
            "provenance": provenance | of_round,
        }
        ec = protocol in OF_ARES and protocol.endswith(("_EC", "_EC_F"))
        return described | ({"k": own.k, "m": own.parity} if ec else {})

    @contextlib.contextmanager
    def _links(self, layout: Layout) -> Any:
        """Apply the delays between sites and the rate of hosts' links for the time of the round."""
        parameters, testbed = self._round.parameters, self._bed.testbed
        sites = list(parameters.sites) if parameters.delay_ms and self._bed.name in MADE else []
        pairs = list(itertools.combinations(sites, 2))
        hosts = layout.hosts if parameters.rate_mbit else ()
        for pair in pairs:
            testbed.delay(*pair, parameters.delay_ms)
        for host in hosts:
            testbed.bandwidth(host, int(parameters.rate_mbit * 1e6))
        try:
            yield
        finally:
            for pair in pairs:
                testbed.delay(*pair, 0.0)
            for host in hosts:
                testbed.bandwidth(host, None)

    def _salvage(self, steps: Sequence[str]) -> None:
        """Fetch the existing logs of a failed round."""
        with contextlib.suppress(RoundFailed):
            play(steps[-1:], self._inventory, self._place, STEPS_S)


def _heard(befalling: RoundFaults, event: dict[str, Any]) -> None:
    """Note begin and end of the work: a task says the begin, and step 5 marks the end."""
    begin_s = event.get("facts", {}).get("round_begin")
    if begin_s is not None:
        befalling.begins(max(0.0, float(begin_s) - time.time()))
    if event.get("event") == "play" and event.get("play") == "Read at last":
        befalling.ends()
