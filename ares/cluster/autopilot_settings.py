"""The cluster file's [autopilot] table: whether, and how, servers that are gone are replaced without anybody asking for it."""

import math
from pathlib import Path

from ares.cluster.tables import AutopilotSettings as AutopilotSettings
from ares.cluster.tables import FileTable
from ares.machine.named_files import refuse

EVERY_S_MIN = 0.1


def autopilot_settings(path: Path, file: FileTable) -> AutopilotSettings | None:
    """What the table says, None if there is none. Raises :class:`ares.BadInput`."""
    table = file.autopilot
    if table is None:
        return None
    if file.etcd is not None:
        why = "one of them leads and flies it, and etcd runs nothing of ares"
        refuse(path, "autopilot", f"expected only with [[consensus]] tables: {why}")
    if not file.consensus:
        refuse(path, "autopilot", "expected only with [[consensus]] tables: one of them leads and flies it")
    for key, least in (("every_s", EVERY_S_MIN), ("after_s", table.every_s)):
        value = getattr(table, key)
        if not (math.isfinite(value) and value >= least):
            what = "seconds" if key == "every_s" else "seconds, no fewer than every_s: one look is not enough to replace a server"
            refuse(path, f"autopilot.{key}", f"expected {what} (at least {least:g}), found {value:g}")
    if table.bytes_per_s < 1:
        refuse(path, "autopilot.bytes_per_s", f"expected bytes per second, more than 0, found {table.bytes_per_s}")
    return table
