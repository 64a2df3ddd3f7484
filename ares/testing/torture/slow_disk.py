"""A storage server with a slow disk: each call to fdatasync takes up to SLOW_DISK_S longer."""

import os
import random
import time
from pathlib import Path

from ares.server.process_lifecycle import run_storage_server

SLOW_DISK_S = 0.3


def serve_slowly(words: str) -> None:
    """Run `ares server CLUSTER --id ID`, for ``words`` CLUSTER and ID, divided by a line feed."""
    sync = os.fdatasync

    def slowed(descriptor: int) -> None:
        time.sleep(random.uniform(0, SLOW_DISK_S))
        sync(descriptor)

    setattr(os, "fdatasync", slowed)  # noqa: B010 - for the type checker it is not there to be set
    cluster, _, id = words.rpartition("\n")
    run_storage_server(Path(cluster), id)
