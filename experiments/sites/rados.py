"""RADOS, the object store of Ceph: at each site a monitor and an OSD that keeps objects in memory; one manager.

A site has a pool for its objects. The pool's rule places the first copy, which serves reads and orders writes, at the site, and further ones at the
sites that follow it in the list.

Debian's packages have it; the library for Python is taken from there, into an interpreter of the same version.
"""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.sites.blocking import answers, await_that, in_thread
from experiments.sites.store import Client, NotDeployed, OperationFailed, Parameters, Sites, site_of

_PORT = 3300
_START_S = 120.0
_OPERATION_S = 120
_PLACEMENT_GROUPS = 4
"""Of a pool."""

_OSD_BYTES = 4 << 30
_OBJECT_BYTES_MAX = 64 << 20
_LIBRARY = Path("/usr/lib/python3/dist-packages") / f"rados{sysconfig.get_config_var('EXT_SUFFIX')}"
_PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "monmaptool", "crushtool")


def missing() -> str | None:
    """Programs and library, and how to get them."""
    if lacking := [name for name in _PROGRAMS if shutil.which(name) is None]:
        packages = "ceph-mon ceph-osd ceph-mgr ceph-common python3-rados"
        return f"RADOS is not here ({', '.join(lacking)}). On Debian: sudo apt-get install --no-install-recommends {packages}"
    return None if _LIBRARY.is_file() else f"{_LIBRARY} is not here: python3-rados is for another Python than {sys.version.split()[0]}, or not installed"
