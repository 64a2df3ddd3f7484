"""The description of a run, from its `run.json`, or from a published run's names.

Names and inventories are of the collection published by the authors of ARES (NGIatlantic, 2022). A
published run is a directory

  `<scenario>/[<RPI Raft|Local Raft>/]<experiment>[_slow_<algorithm>]/`
  `logs_<experiment>[_<size or k>]_<S-W-R[-G]>_<i>`.
"""

import configparser
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.platform.named_files import read_named

DESCRIPTIONS = ("run.json", "config.ini", "ansible-hosts")
DESCRIPTION_BYTES_MAX = 4 << 20

_SCENARIOS = (  # id, in the folder's name, begin of experiments, size of objects; first match
    ("node_crashes", "node crashes", "scalabilityreconchangingterminate", 2**20),
    ("recon_alternate_random_servers", "alternately", "scalabilityreconserverschanging", 2**20),
    ("recon_same_dap", "same dap", "scalabilityreconfixed", 2**20),
    ("scalability", "participation", "scalability", 2**20),
    ("object_size", "object size", "filesize", None),
    ("fragmentation_k", "parameter k", "differentk", 2**22),
    ("topology1", "scenario 1", r"throughput\w*?sEU\d", 32),
    ("topology2", "scenario 2", "throughput", 32),
)
_RUN_NAME = re.compile(r"logs_(.+?)_(\d{1,9})-(\d{1,9})-(\d{1,9})(?:-(\d{1,9}))?_(\d{1,9})")
_ALGORITHM = re.compile(r"(?:slow|fast)_?(ARES_?EC|ARES_?ABD|ARES|ABD)")
_ALGORITHMS = {"ARESEC": "ARES_EC", "ARESABD": "ARES_ABD", "ARES": "ARES_MIXED", "ABD": "ABD"}
_PLACES = re.compile(r"sEU(\d+)US(\d+)(?:wEU(\d+)US(\d+))?(?:rEU(\d+)US(\d+))?")
_EUROPE = re.compile(r"193\.190\.[\d.]+|.*\.(iminds\.be|grid5000\.fr)")
_AMERICA = re.compile(r".*\.utah\.cloudlab\.us|(.*\.)?(genirack\.nyu\.edu|instageni\..*)")
_INVENTORY_HOST = re.compile(r"\s(?:ansible_ssh_host|ansible_host)=(\S+)")
_PARITIES = {3: 1, 11: 5}
"""Parity by servers, for runs without a `config.ini` (final report, 5.1)."""

_PUBLISHED_PARAMETERS = '{"published":"operation logs of the authors of ARES (NGIatlantic, 2022)"}'

ReportFlaw = Callable[[str, str], None]
"""A function called with a file's name and the flaw in the file."""


class RunDescription(Struct):
    """The values for the columns of the table `runs`.

    ``name``: the path known to people. ``published``: a run of the authors' collection.
    """

    name: str
    scenario: str | None = None
    algorithm: str | None = None
    servers: int | None = None
    writers: int | None = None
    readers: int | None = None
    reconfigurers: int | None = None
    object_size: int | None = None
    k: int | None = None
    m: int | None = None
    topology: str | None = None
    iteration: int | None = None
    level: str | None = None
    parameters: str = "{}"
    provenance: str = "{}"
    published: bool = False


def shown_path(path: Path | str) -> str:
    """Return a path as text, with backslashes and digits for bytes that are not UTF-8."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class PathNames(Struct):
    """Texts of paths in the database and in reports.

    ``unpacked``: the archive of each temporary directory. A file of an archive is ARCHIVE/NAME.
    """

    unpacked: dict[str, str] = {}

    def shown(self, path: Path | str) -> str:
        """Return the text of a path."""
        text = shown_path(path)
        for directory, archive in self.unpacked.items():
            if text == directory or text.startswith(f"{directory}/"):
                return archive + text[len(directory) :]
        return text

    def actual(self, text: str) -> Path:
        """Return the path of a text."""
        for directory, archive in self.unpacked.items():
            if text.startswith(f"{archive}/"):
                return Path(directory + text[len(archive) :])
        return Path(text)


AS_ON_DISK = PathNames()


def describe(directory: Path, names: set[str], report_flaw: ReportFlaw) -> RunDescription:
    """Return the description of the run in ``directory``, which has files of these ``names``.

    ``report_flaw`` is called for each flaw in these files.
    """
    if "run.json" not in names and (found := _RUN_NAME.fullmatch(directory.name)):
        return _published(directory, found, names, report_flaw)
    run = RunDescription(shown_path(directory), scenario=shown_path(directory.name))
    if (text := _content(directory, "run.json", names, report_flaw)) is None:
        return run
    try:
        content = msgspec.json.decode(text, type=dict[str, object])
        content.setdefault("scenario", run.scenario)
    except (ValueError, RecursionError) as error:
        report_flaw("run.json", f"not JSON of a run: {error}")
        return run
    for field in (
        "scenario",
        "algorithm",
        "topology",
        "servers",
        "writers",
        "readers",
        "reconfigurers",
        "object_size",
        "k",
        "m",
        "iteration",
    ):
        value, wanted = (
            content.get(field),
            str if field in ("scenario", "algorithm", "topology") else int,
        )
        if (
            isinstance(value, wanted)
            and not isinstance(value, bool)
            and (isinstance(value, str) or abs(value) < 2**63)
        ):
            setattr(run, field, value)
        elif value is not None:
            report_flaw(
                "run.json",
                f"{field} is not {'a text' if wanted is str else 'an integer'}, and is passed over",
            )
    run.parameters, run.provenance = (
        msgspec.json.encode(content.get(field) or {}).decode()
        for field in ("parameters", "provenance")
    )
    return run


def _published(
    directory: Path, found: re.Match[str], names: set[str], report_flaw: ReportFlaw
) -> RunDescription:
    experiment, servers = found[1], int(found[2])
    parts = [shown_path(part) for part in directory.parts]
    place = next(
        (
            place
            for place in range(len(parts) - 2, max(len(parts) - 5, 0), -1)
            if _scenario_of_folder(parts[place])
        ),
        None,
    )
    folder = parts[place] if place is not None else ""
    if "raw_data" in parts:
        place = len(parts) - 1 - parts[::-1].index("raw_data") + 1
    run = RunDescription(
        "/".join(["raw_data", *parts[place:]]) if place is not None else shown_path(directory),
        published=True,
    )
    run.servers, run.writers, run.readers, run.reconfigurers = (
        servers,
        int(found[3]),
        int(found[4]),
        int(found[5] or 0),
    )
    run.iteration = int(found[6])
    run.provenance = _PUBLISHED_PARAMETERS
    scenario = _scenario_of_folder(folder) or next(
        (row for row in _SCENARIOS if re.match(row[2], experiment)), None
    )
    number = int(last[1]) if (last := re.search(r"_(\d{1,15})$", experiment)) else None
    if scenario is not None:
        run.scenario, run.object_size = scenario[0], scenario[3] or number
    if run.scenario in ("recon_alternate_random_servers", "recon_same_dap"):
        is_local = "Local Raft" in parts or (
            "RPI Raft" not in parts and "localraft" in experiment.lower()
        )
        run.scenario += "/local_raft" if is_local else "/rpi_raft"
    run.algorithm = _algorithm(f"{directory.parent.name} {experiment}")
    run.level = "user" if run.algorithm in ("CASSANDRA", "REDIS", "REDIS_W") else "client"
    if run.algorithm == "ARES_EC":
        parity = _parity(directory, names, report_flaw)
        run.m = (
            servers - number
            if run.scenario == "fragmentation_k" and number
            else _PARITIES.get(servers)
            if parity is None
            else parity
        )
        run.k = servers - run.m if run.m is not None and run.m < servers else None
    run.topology = _topology(
        directory, experiment if run.scenario == "topology1" else "", names, report_flaw
    )
    return run


def _scenario_of_folder(folder: str) -> tuple[str, str, str, int | None] | None:
    return next(
        (row for row in _SCENARIOS if row[1] in folder.lower() and not folder.startswith("logs_")),
        None,
    )


def _algorithm(names: str) -> str | None:
    if found := _ALGORITHM.search(names):
        return _ALGORITHMS[found[1].replace("_", "")]
    return next(
        (
            name
            for word, name in (
                ("Cassandra", "CASSANDRA"),
                ("RedisW", "REDIS_W"),
                ("Redis", "REDIS"),
            )
            if word in names
        ),
        None,
    )


def _parity(directory: Path, names: set[str], report_flaw: ReportFlaw) -> int | None:
    """Return the parity of the erasure code: `f` in `config.ini`."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    text = _content(directory, "config.ini", names, report_flaw)
    try:
        parser.read_string((text or b"").decode("utf-8", "replace"))
    except configparser.Error as error:
        report_flaw("config.ini", f"not as expected: {error}")
    parity = parser.get("Parameters", "f", fallback="").strip()
    return int(parity) if re.fullmatch(r"\d{1,4}", parity) else None


def _topology(
    directory: Path, experiment: str, names: set[str], report_flaw: ReportFlaw
) -> str | None:
    """Return servers, writers and readers on either side of the ocean.

    As in `1E+2U w=1E0U r=0E1U`; from an experiment's name, `w=E`.
    """
    if found := _PLACES.search(experiment):
        places = [int(digits or 0) for digits in found.groups()]
        sides = [
            ("E" if in_europe else "") + ("U" if in_america else "") or "-"
            for in_europe, in_america in (places[2:4], places[4:])
        ]
        return f"{places[0]}E+{places[1]}U w={sides[0]} r={sides[1]}"
    text = _content(directory, "ansible-hosts", names, report_flaw)
    if text is None:
        return None
    counts: dict[str, list[int]] = {"servers": [0, 0], "writers": [0, 0], "readers": [0, 0]}
    group = ""
    for line in text.decode("utf-8", "replace").splitlines():
        if heading := re.match(r"\s*\[([^\]]*)\]", line):
            group = heading[1]
        elif (
            group in counts
            and not line.lstrip().startswith(("#", ";"))
            and (host := _INVENTORY_HOST.search(line))
        ):
            counts[group][0] += _EUROPE.fullmatch(host[1]) is not None
            counts[group][1] += _AMERICA.fullmatch(host[1]) is not None
    (europe, america), writers, readers = counts.values()
    return f"{europe}E+{america}U w={writers[0]}E{writers[1]}U r={readers[0]}E{readers[1]}U"


def _content(directory: Path, name: str, names: set[str], report_flaw: ReportFlaw) -> bytes | None:
    if name not in names:
        return None
    try:
        return read_named(directory / name, DESCRIPTION_BYTES_MAX, streams=False)[0]
    except OSError as error:
        report_flaw(name, f"cannot be read: {error.strerror}")
        return None
