"""RADOS, the object store of Ceph: at each site a monitor and an OSD; a single manager.

OSDs keep objects in memory. A site has a pool for its objects. The pool's rule places the first
copy, which serves reads and orders writes, at the site, and further copies at the next sites in the
list.

Debian has packages; their Python library is loaded into an interpreter of the same version.
"""

import shutil
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments import module_at
from experiments.bench.store_processes import ProgramNotStarted
from experiments.blocking_calls import in_thread
from experiments.sites.site_store import (
    Deployment,
    OperationFailed,
    Parameters,
    SiteClient,
    holders,
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


class RadosDeployment(Deployment):
    """A monitor and an OSD at each site, and a manager at the first. The monitors end last."""

    def parameters(self, site: str) -> Parameters:
        """Return all monitors: a client turns to another monitor after its own is gone."""
        return {"monitors": ",".join(map(self._monitor, self.bed.sites))}

    def _monitor(self, site: str) -> str:
        return f"[v2:{self.bed.address(site)}:{_PORT}/0]"

    def deploy(self) -> None:
        bed, home = self.bed, self.bed.directory
        first, self._file = bed.sites[0], home / "ceph.conf"
        monitors = self.parameters(first)["monitors"]
        self._file.write_text(configuration(str(uuid.uuid4()), monitors, home))
        self._start_monitors(first, home)
        self._start_osds(first, home)
        size = len(holders(bed.sites, first, self.replicas))
        pools = f"{_PLACEMENT_GROUPS} {_PLACEMENT_GROUPS} replicated"
        self._command(f"osd pool create {site} {pools} {site} --size {size}" for site in bed.sites)
        clean = f"{len(bed.sites) * _PLACEMENT_GROUPS} active+clean"
        self._await(
            "ceph-mgr", lambda: clean in self._asked("pg stat"), f"`ceph pg stat` says {clean!r}"
        )

    def _start_monitors(self, first: str, home: Path) -> None:
        monitors = " ".join(f"--addv {site} {self._monitor(site)}" for site in self.bed.sites)
        self._run(first, "monmaptool", f"--create {monitors} {home}/monmap")
        for site in self.bed.sites:
            data = f"-i {site} --mon-data {home}/mon-{site}"
            self._run(site, "ceph-mon", f"--mkfs --monmap {home}/monmap {data}")
            self._serve(site, "ceph-mon", data)
        self._await("ceph-mon", lambda: self._asked("quorum_status"), "the monitors have a quorum")

    def _start_osds(self, first: str, home: Path) -> None:
        osds = {site: str(uuid.uuid4()) for site in self.bed.sites}
        quiet = "config set mgr mgr/devicehealth/enable_monitoring false --force"
        self._command([quiet, *(f"osd new {osd}" for osd in osds.values())])
        self._serve(first, "ceph-mgr", f"-i manager --mgr-data {home}/mgr")
        (home / "crush.txt").write_text(crush_map(self.bed.sites, self.replicas))
        self.bed.run(first, *f"crushtool -c {home}/crush.txt -o {home}/crush".split())
        self._run(first, "ceph", f"osd setcrushmap -i {home}/crush")
        for number, (site, osd) in enumerate(osds.items()):
            data = f"-i {number} --osd-data {home}/osd-{site}"
            (home / f"osd-{site}").mkdir()
            self._run(site, "ceph-osd", f"--mkfs --osd-uuid {osd} {data}")
            self._serve(site, "ceph-osd", data)

    def _run(self, site: str, program: str, words: str) -> None:
        self.bed.run(site, program, "-c", str(self._file), *words.split())

    def _serve(self, site: str, program: str, words: str) -> None:
        public = f"-f -c {self._file} --public-addr {self.bed.address(site)}"
        self.serve(site, f"{program}-{site}", program, *f"{public} {words}".split())

    def _await(self, program: str, holds: Callable[[], object], what: str) -> None:
        self.await_server(f"{program}-{self.bed.sites[0]}", holds, what, _CEPH_START_S)

    def _asked(self, words: str) -> str:
        command = f"ceph -c {self._file} --connect-timeout 10 {words}"
        return self.answer(self.bed.sites[0], *command.split())

    def _command(self, commands: Iterable[str]) -> None:
        """Send the commands in a single process, because a process takes long to start.

        Its exit status does not say whether the commands succeeded.
        """
        script = self.bed.directory / "commands"
        script.write_text("".join(f"{command}\n" for command in commands))
        output = self.bed.run(self.bed.sites[0], "sh", "-c", f"ceph -c {self._file} <{script} 2>&1")
        if "Error" in output:
            raise ProgramNotStarted(f"RADOS refused an order: {output[-1000:]}")


deployment = RadosDeployment


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
        bucket = f" id {-2 - number}\n alg straw2\n hash 0\n item osd.{number} weight 1.0\n"
        buckets += f"host {site} {{\n{bucket}}}\n"
        steps = "".join(
            f" step take {holder}\n step choose firstn 1 type osd\n step emit\n"
            for holder in holders(sites, site, copies)
        )
        rule = f" id {number}\n type replicated\n min_size 1\n max_size 10\n"
        rules += f"rule {site} {{\n{rule}{steps}}}\n"
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
    # Debian's library, which the project's own interpreter does not see
    library = module_at("rados", _LIBRARY)
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
