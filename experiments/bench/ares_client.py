"""The bench's clients of ares, by the public interface, or of its algorithms as published."""

from msgspec import structs

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.model.errors import AresError, ObjectNotFound
from ares.testing.published.published_objects import connect_published
from experiments.bench.store_clients import AresStore, Coroutines


async def ares_clients(store: AresStore) -> Coroutines:
    """Return clients that share a connection."""
    settings = Settings.load(store.file)
    if store.published is not None:
        published = await connect_published(settings, store.published)
        return Coroutines(published, (AresError,), published.close, absent=(ObjectNotFound,))
    client = structs.replace(settings.client, fast_read=store.fast_read, piggyback=store.piggyback)
    manager = await connect(structs.replace(settings, client=client))
    objects = manager if store.domain is None else await manager.domain(store.domain)
    return Coroutines(objects, (AresError,), manager.close, absent=(ObjectNotFound,))
