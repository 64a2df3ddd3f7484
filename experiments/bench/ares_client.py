"""The bench's clients of ares: the public interface, nothing else."""

from msgspec import structs

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.model.errors import AresError
from experiments.bench.stores import AresStore, Coroutines


async def ares_clients(store: AresStore) -> Coroutines:
    """Clients of one connection."""
    settings = Settings.load(store.file)
    client = structs.replace(settings.client, fast_read=store.fast_read, piggyback=store.piggyback)
    return Coroutines(await connect(structs.replace(settings, client=client)), (AresError,))
