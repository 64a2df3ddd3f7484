"""A disk whose syncs are timed, for whoever watches the process."""

import time

from ares.machine.metrics import DISK_S, Histogram
from ares.store.journal.disk import Disk


class TimedDisk(Disk):
    """``syncs``: how long each call to fdatasync took."""

    def __init__(self) -> None:
        self.syncs = Histogram(DISK_S)

    def sync(self, descriptor: int) -> None:
        begin_s = time.perf_counter()
        super().sync(descriptor)
        self.syncs.add(time.perf_counter() - begin_s)
