"""An addition to the cluster file of one machine: the autopilot and a spare server.

A lost server of a log's chain stops the log, and with it every change of the buckets, until the
autopilot or an operator leaves the server out.
"""

from contextlib import ExitStack
from itertools import count

from ares.cluster.addresses import split_address
from ares.cluster.home import kept_in, new_identity, prepare
from ares.cluster.new_cluster import is_free
from ares.cluster.settings import Settings
from ares.cluster.tables import AutopilotSettings, ServerSettings, lines
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.numbers import PORT_MAX
from ares.platform.named_files import SETTINGS_BYTES_MAX, read_named
from ares.platform.replacement import replace_file
from ares.security.keys import SecretKey, write_secret

_REMARK = "\n# Added by `ares-cli up --gateway`: lost servers are replaced (docs/autopilot.md).\n"


def add_autopilot(settings: Settings, gateway_port: int) -> tuple[Settings, str]:
    """Add the autopilot to the cluster file, and a spare, unless they are there.

    No process of the cluster may run, and all have their directories on this machine. Nothing is
    added without consensus members, in which the autopilot works. ``gateway_port``: of the gateway,
    no port for the spare. Returns the settings, and the addition in words; empty without an
    addition. Raises :class:`ares.BadInput` and OSError, and leaves the file and the keys then.
    """
    if not settings.members:
        return settings, ""
    tables, added = [], []
    if settings.autopilot is None:
        tables.append(f"[autopilot]\n{lines(AutopilotSettings())}")
        added.append("the autopilot")
    spare = key = None
    if len(settings.servers) == len(settings.initial.server_ids):
        key = None if settings.security is None else SecretKey.generate()
        spare = _new_server(settings, key, gateway_port)
        tables.append(f"[[server]]\n{lines(spare)}")
        added.append(f"the spare {spare.id}")
    if not tables:
        return settings, ""
    text = read_named(settings.path, SETTINGS_BYTES_MAX)[0].decode("utf-8")
    text += _REMARK + "\n".join(tables)
    larger = Settings.parse(text, settings.path)
    with ExitStack() as undone:
        if spare is not None and key is not None and settings.security is not None:
            secret = settings.security.secret_path(spare.id)
            write_secret(secret, key.secret.hex())
            undone.callback(secret.unlink)
        if spare is not None:
            prepare(larger.servers[spare.id].data)
        replace_file(settings.path.resolve(), text.encode(), durable=True)  # a link stays a link
        undone.pop_all()
    return larger, " and ".join(added)


def _new_server(settings: Settings, key: SecretKey | None, gateway_port: int) -> ServerSettings:
    """Return another server like the first one, at free ports. ``key``: None without keys."""
    first = next(iter(settings.servers.values()))
    ids = (f"s{number}" for number in count(len(settings.servers)))
    id = next(id for id in ids if _is_unused(settings, id))
    address, http = _free_addresses(settings, [first.address, first.http], gateway_port)
    return ServerSettings(
        *(ServerId(id), address, new_identity()),
        public_key="" if key is None else key.public,
        http=http,
        site=first.site,
    )


def _is_unused(settings: Settings, id: str) -> bool:
    """Return whether no process has the id, or left a key or data under the id."""
    taken = {str(process.id) for process in settings.processes()}
    secret = None if settings.security is None else settings.security.secret_path(id)
    left = kept_in(settings.path.parent / "data" / id)
    return id not in taken and left is None and (secret is None or not secret.exists())


def _free_addresses(settings: Settings, like: list[str], gateway_port: int) -> list[str]:
    """Return an address with the host of each of ``like``, at free ports behind the file's."""
    used = [each.address for each in settings.processes()]
    used += [each.http for each in settings.processes() if each.http]
    used += [each.raft for each in settings.members.values()]
    last = max(split_address(address)[1] for address in used)
    ports = (port for port in range(last + 1, PORT_MAX + 1) if port != gateway_port)
    found = []
    for host, _ in map(split_address, filter(None, like)):
        port = next((port for port in ports if is_free(host, port)), None)
        if port is None:
            raise BadInput(f"{settings.path}: no port behind those of the file is free for a spare")
        found.append(f"{host}:{port}")
    return [*found, ""][: len(like)]
