"""RADOS, the object store of Ceph: at each site a monitor and an OSD; a single manager.

OSDs keep objects in memory. A site has a pool for its objects. The pool's rule places the first
copy, which serves reads and orders writes, at the site, and further copies at the next sites in the
list.

Debian has packages; their Python library is loaded into an interpreter of the same version.
"""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.bench.store_processes import ProgramNotStarted, await_that
from experiments.blocking_calls import in_thread
from experiments.sites.placement import holders
from experiments.sites.site_store import (
    OperationFailed,
    Parameters,
    SiteClient,
    SiteNetwork,
    answers,
    site_of,
)

_PORT = 3300
_CEPH_START_S = 120.0
_CEPH_OPERATION_S = 120
_PLACEMENT_GROUPS = 4
"""Number of placement groups of a pool."""

_OSD_BYTES = 4 << 30
_OBJECT_BYTES_MAX = 64 << 20
_LIBRARY = Path("/usr/lib/python3/dist-packages") / f"rados{sysconfig.get_config_var('EXT_SUFFIX')}"
_CEPH_PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "monmaptool", "crushtool")


def missing() -> str | None:
    """Return the missing programs and library, and how to get them."""
    if lacking := [name for name in _CEPH_PROGRAMS if shutil.which(name) is None]:
        packages = "ceph-mon ceph-osd ceph-mgr ceph-common python3-rados"
        return (
            f"RADOS is not here ({', '.join(lacking)}). On Debian: sudo apt-get install "
            f"--no-install-recommends {packages}"
        )
    how = f"python3-rados is not installed, or for another Python than {sys.version.split()[0]}"
    return None if _LIBRARY.is_file() else f"RADOS's library is not here ({_LIBRARY}): {how}"


class RadosDeployment:
    """A monitor and an OSD at each site, and a manager at the first."""

    def __init__(self) -> None:
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self, bed: SiteNetwork, replicas: int) -> None:
        """Do the work of :class:`experiments.sites.site_store.Deployment`."""
        self._bed, self._file = bed, bed.directory / "ceph.conf"
        await in_thread(self._start, replicas)

    async def stop(self) -> None:
        """End the OSDs and the manager, and the monitors last."""
        for server in reversed(self._servers.values()):
            await in_thread(self._bed.stop, server)

    def parameters(self, site: str) -> Parameters:
        """Return all monitors: a client turns to another monitor after its own is gone."""
        return {"monitors": self._monitors()}

    def _monitors(self) -> str:
        return ",".join(f"[v2:{self._bed.address(site)}:{_PORT}/0]" for site in self._bed.sites)

    def _start(self, replicas: int) -> None:
        bed, home = self._bed, self._bed.directory
        self._file.write_text(configuration(str(uuid.uuid4()), self._monitors(), home))
        self._start_monitors()
        self._start_osds(replicas)
        self._make_pools(replicas)
        clean = f"{len(bed.sites) * _PLACEMENT_GROUPS} active+clean"
        log = home / f"ceph-mgr-{bed.sites[0]}.log"
        await_that(
            lambda: clean in self._asked("pg", "stat"),
            f"`ceph pg stat` says {clean!r}",
            _CEPH_START_S,
            log,
            self._servers,
        )

    def _start_monitors(self) -> None:
        bed, home = self._bed, self._bed.directory
        monitors = [
            word
            for site in bed.sites
            for word in ("--addv", site, f"[v2:{bed.address(site)}:{_PORT}/0]")
        ]
        bed.run(
            bed.sites[0],
            "monmaptool",
            "--create",
            "-c",
            str(self._file),
            *monitors,
            str(home / "monmap"),
        )
        for site in bed.sites:
            data = ("-i", site, "--mon-data", str(home / f"mon-{site}"))
            bed.run(
                site,
                "ceph-mon",
                "-c",
                str(self._file),
                "--mkfs",
                "--monmap",
                str(home / "monmap"),
                *data,
            )
            self._serve(site, "ceph-mon", *data)
        await_that(
            lambda: self._asked("quorum_status"),
            "the monitors have a quorum",
            _CEPH_START_S,
            home / f"ceph-mon-{bed.sites[0]}.log",
            self._servers,
        )

    def _start_osds(self, replicas: int) -> None:
        bed, home = self._bed, self._bed.directory
        osds = {site: str(uuid.uuid4()) for site in bed.sites}
        self._asked_all(
            [
                "config set mgr mgr/devicehealth/enable_monitoring false --force",
                *(f"osd new {osd}" for osd in osds.values()),
            ]
        )
        self._serve(bed.sites[0], "ceph-mgr", "-i", "manager", "--mgr-data", str(home / "mgr"))
        (home / "crush.txt").write_text(crush_map(bed.sites, replicas))
        bed.run(bed.sites[0], "crushtool", "-c", str(home / "crush.txt"), "-o", str(home / "crush"))
        bed.run(
            bed.sites[0],
            "ceph",
            "-c",
            str(self._file),
            "osd",
            "setcrushmap",
            "-i",
            str(home / "crush"),
        )
        for number, (site, osd) in enumerate(osds.items()):
            data = ("-i", str(number), "--osd-data", str(home / f"osd-{site}"))
            (home / f"osd-{site}").mkdir()
            bed.run(site, "ceph-osd", "-c", str(self._file), "--mkfs", "--osd-uuid", osd, *data)
            self._serve(site, "ceph-osd", *data)

    def _make_pools(self, replicas: int) -> None:
        bed = self._bed
        size = len(holders(bed.sites, bed.sites[0], replicas))
        self._asked_all(
            [
                (
                    f"osd pool create {site} {_PLACEMENT_GROUPS} {_PLACEMENT_GROUPS} replicated "
                    f"{site} --size {size}"
                )
                for site in bed.sites
            ]
        )

    def _serve(self, site: str, program: str, *words: str) -> None:
        name = f"{program}-{site}"
        public = ("--public-addr", self._bed.address(site))
        self._servers[name] = self._bed.start(
            site, name, program, "-f", "-c", str(self._file), *public, *words
        )

    def _asked(self, *words: str) -> str:
        return answers(
            self._bed,
            self._bed.sites[0],
            "ceph",
            "-c",
            str(self._file),
            "--connect-timeout",
            "10",
            *words,
        )

    def _asked_all(self, commands: Sequence[str]) -> None:
        """Send the commands in a single process, because a process takes long to start.

        Its exit status does not say whether the commands succeeded.
        """
        script = self._bed.directory / "commands"
        script.write_text("".join(f"{command}\n" for command in commands))
        output = self._bed.run(
            self._bed.sites[0], "sh", "-c", f"ceph -c {self._file} <{script} 2>&1"
        )
        if "Error" in output:
            raise ProgramNotStarted(f"RADOS refused an order: {output[-1000:]}")


def configuration(cluster: str, monitors: str, home: Path) -> str:
    """Return the configuration of all servers and tools.

    No authentication, no files outside of ``home``, single copies allowed.
    """
    return f"""[global]
fsid = {cluster}
mon host = {monitors}
auth cluster required = none
auth service required = none
auth client required = none
ms bind msgr1 = false
run dir = {home}
crash dir = {home}
admin socket =
log file =
log to file = false
log to stderr = true
debug rocksdb = 0
mon cluster log to file = false
mon cluster log to stderr = false
mon allow pool size one = true
osd crush update on start = false
osd objectstore = memstore
memstore device bytes = {_OSD_BYTES}
osd pool default pg autoscale mode = off
"""


def crush_map(sites: Sequence[str], copies: int) -> str:
    """Return a bucket for each site with its OSD, and a rule of each site's name.

    The first copy is at the site, the others at the sites after it.
    """
    devices = "".join(f"device {number} osd.{number}\n" for number in range(len(sites)))
    buckets, rules = "", ""
    for number, site in enumerate(sites):
        buckets += (
            f"host {site} {{\n"
            f" id {-2 - number}\n"
            " alg straw2\n"
            " hash 0\n"
            f" item osd.{number} weight 1.0\n"
            "}\n"
        )
        steps = "".join(
            f" step take {holder}\n step choose firstn 1 type osd\n step emit\n"
            for holder in holders(sites, site, copies)
        )
        rules += (
            f"rule {site} {{\n"
            f" id {number}\n"
            " type replicated\n"
            " min_size 1\n"
            " max_size 10\n"
            f"{steps}}}\n"
        )
    return f"{_TUNABLES}{devices}type 0 osd\ntype 1 host\n{buckets}{rules}"


_TUNABLES = """\
tunable choose_local_tries 0
tunable choose_local_fallback_tries 0
tunable choose_total_tries 50
tunable chooseleaf_descend_once 1
tunable chooseleaf_vary_r 1
tunable chooseleaf_stable 1
tunable straw_calc_version 1
"""


def deployment(options: Mapping[str, Any]) -> RadosDeployment:
    """Return the deployment; RADOS has no options."""
    return RadosDeployment()


class RadosClient:
    """A user of librados, whose calls block: each call is in a thread."""

    def __init__(self, library: ModuleType, cluster: Any) -> None:
        self._library, self._cluster = library, cluster
        self._pools: dict[str, Any] = {}

    async def put(self, name: str, value: bytes) -> str:
        """Write into the pool of the name's site."""
        await self._do(lambda: self._pool(name).write_full(name, value))
        return name

    async def get(self, name: str) -> bytes:
        """Read from the pool of the name's site."""
        return bytes(await self._do(lambda: self._pool(name).read(name, _OBJECT_BYTES_MAX)))

    async def close(self) -> None:
        """End the session."""
        await in_thread(self._cluster.shutdown)

    def _pool(self, name: str) -> Any:
        site = site_of(name)
        if site not in self._pools:
            self._pools[site] = self._cluster.open_ioctx(site)
        return self._pools[site]

    async def _do(self, function: Callable[[], Any]) -> Any:
        try:
            return await in_thread(function)
        except self._library.Error as error:
            raise OperationFailed(f"RADOS: {error}") from error


async def connect(parameters: Parameters, site: str) -> SiteClient:
    """Return a client at ``site``. Raises OperationFailed if no monitor admits the client in 30 s.

    A site that is cut off has no such monitor.
    """
    library = _library()
    settings = dict.fromkeys(
        (f"auth_{whom}_required" for whom in ("cluster", "service", "client")), "none"
    )
    settings |= {
        "mon_host": parameters["monitors"],
        "client_mount_timeout": "30",
        "rados_osd_op_timeout": str(_CEPH_OPERATION_S),
    }
    cluster = library.Rados(conf=settings)
    try:
        await in_thread(cluster.connect)
    except library.Error as error:
        raise OperationFailed(f"RADOS: {error}") from error
    return RadosClient(library, cluster)


def _library() -> ModuleType:
    """Return Debian's library, which the project's own interpreter does not see."""
    spec = importlib.util.spec_from_file_location("rados", _LIBRARY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
