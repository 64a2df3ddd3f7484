"""The bench's clients of ares, which use the public interface only."""

from msgspec import structs

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.model.errors import AresError, ObjectNotFound
from experiments.bench.store_clients import AresStore, Coroutines


async def ares_clients(store: AresStore) -> Coroutines:
    """Return clients that share a connection."""
    settings = Settings.load(store.file)
    client = structs.replace(settings.client, fast_read=store.fast_read, piggyback=store.piggyback)
    manager = await connect(structs.replace(settings, client=client))
    objects = manager if store.domain is None else await manager.domain(store.domain)
    return Coroutines(objects, (AresError,), manager.close, absent=(ObjectNotFound,))
