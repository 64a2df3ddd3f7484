"""The stores of the study, by name. The module of a store is imported at its first use."""

import importlib
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from experiments.sites.site_store import StoreModule


class StoreRow(Struct, frozen=True):
    """A row of the table of stores: a module of experiments.sites, and copies of an object."""

    module: str
    replicas: int = 1
    options: Mapping[str, Any] = {}
    """Arguments for the module's ``deployment``."""


SITE_STORES = {
    "ares x1": StoreRow("ares_store", 1),
    "ares x3": StoreRow("ares_store", 3),
    "ares x3 follows": StoreRow("ares_store", 3, {"follows": True}),
    "ipfs": StoreRow("ipfs"),
    "cassandra x1": StoreRow("cassandra", 1),
    "cassandra x3": StoreRow("cassandra", 3),
    "rados x1": StoreRow("rados", 1),
    "rados x3": StoreRow("rados", 3),
}


def module_of(row: StoreRow) -> StoreModule:
    """Return the module of the row."""
    return cast(StoreModule, importlib.import_module(f"experiments.sites.{row.module}"))
