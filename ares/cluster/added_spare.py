"""An addition to the cluster file of one machine: the autopilot and a spare server.

A lost server of a log's chain stops the log, and with it every change of the buckets, until the
autopilot or an operator leaves the server out.
"""

from itertools import count

from ares.cluster.addresses import split_address
from ares.cluster.home import new_identity, prepare
from ares.cluster.new_cluster import is_free
from ares.cluster.settings import Settings
from ares.cluster.tables import AutopilotSettings, ServerSettings, lines
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.numbers import PORT_MAX
from ares.platform.named_files import SETTINGS_BYTES_MAX, read_named
from ares.platform.replacement import replace_durably
from ares.security.keys import SecretKey, write_secret

_REMARK = "\n# Added by `ares-cli up --gateway`: lost servers are replaced (docs/autopilot.md).\n"


def add_autopilot(settings: Settings) -> tuple[Settings, str]:
    """Add the autopilot to the cluster file, and a spare, unless they are there.

    No process of the cluster may run, and all have their directories on this machine. Nothing is
    added without consensus members, in which the autopilot works. Returns the settings, and the
    addition in words; empty without an addition. Raises :class:`ares.BadInput`.
    """
    if not settings.members:
        return settings, ""
    tables, added = [], []
    if settings.autopilot is None:
        tables.append(f"[autopilot]\n{lines(AutopilotSettings())}")
        added.append("the autopilot")
    spare = None
    if len(settings.servers) == len(settings.initial.server_ids):
        spare = _new_server(settings)
        tables.append(f"[[server]]\n{lines(spare)}")
        added.append(f"the spare {spare.id}")
    if not tables:
        return settings, ""
    text = read_named(settings.path, SETTINGS_BYTES_MAX)[0].decode("utf-8")
    text += _REMARK + "\n".join(tables)
    larger = Settings.parse(text, settings.path)
    if spare is not None:
        prepare(larger.servers[spare.id].data)
    replace_durably(settings.path, text, settings.path.stat().st_mode & 0o777)
    return larger, " and ".join(added)


def _new_server(settings: Settings) -> ServerSettings:
    """Return another server like the first one, at free ports, after making its key."""
    first, security = next(iter(settings.servers.values())), settings.security
    taken = {str(process.id) for process in settings.processes()}
    id = next(
        id
        for id in (f"s{number}" for number in count(len(settings.servers)))
        if id not in taken and (security is None or not security.secret_path(id).exists())
    )
    address, http = _free_addresses(settings, [first.address, first.http])
    public_key = ""
    if security is not None:
        key = SecretKey.generate()
        write_secret(security.secret_path(id), key.secret.hex())
        public_key = key.public
    return ServerSettings(
        *(ServerId(id), address, new_identity()), public_key=public_key, http=http, site=first.site
    )


def _free_addresses(settings: Settings, like: list[str]) -> list[str]:
    """Return an address with the host of each of ``like``, at free ports behind the file's."""
    used = [each.address for each in settings.processes()]
    used += [each.http for each in settings.processes() if each.http]
    used += [each.raft for each in settings.members.values()]
    last = max(split_address(address)[1] for address in used)
    ports = iter(range(last + 1, PORT_MAX + 1))
    found = []
    for host, _ in map(split_address, filter(None, like)):
        port = next((port for port in ports if is_free(host, port)), None)
        if port is None:
            raise BadInput(f"{settings.path}: no port behind those of the file is free for a spare")
        found.append(f"{host}:{port}")
    return [*found, ""][: len(like)]
