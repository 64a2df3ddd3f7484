"""How a server gets at the elements that others hold, to repair its own: as a client of theirs, connected only once there is something to repair."""

import secrets

from ares.client.runner import Runner
from ares.cluster.settings import ServerSettings, Settings
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration
from ares.model.identity import ClientId, ObjectName
from ares.model.messages import Element
from ares.model.tag import Tag
from ares.net.transports import connections as connections_with
from ares.objects.repair import rebuild_element

TIMEOUT_S = 60.0


class Rebuilding:
    """``await`` it like a function: :data:`ares.server.scrub.Pull` of ``server``. Close it at the end."""

    def __init__(self, settings: Settings, server: ServerSettings) -> None:
        self._settings = settings
        self._server = server
        self._runner: Runner | None = None

    async def __call__(self, configuration: Configuration, object: ObjectName, tag: Tag, length: int) -> Element | None:
        runner = self._runner = self._runner or self._connected()
        rebuilt = rebuild_element(configuration, object, tag, length, self._server.id, runner.session.readiness.suspects)
        return await runner.run(rebuilt, f"repair of {object!r}", TIMEOUT_S)

    async def aclose(self) -> None:
        if self._runner is not None:
            await self._runner.close()

    def _connected(self) -> Runner:
        settings, server = self._settings, self._server
        key = None if settings.security is None else settings.security.process_key(server.id, server.public_key)
        nobody = LocalConsensus()  # what rotted is asked for where it was, not in configurations that followed
        runner = Runner(ClientId(secrets.randbits(64)), connections_with(key, settings.transport), nobody)
        runner.learn(list(settings.book().values()))
        return runner
