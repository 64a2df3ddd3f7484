#!/usr/bin/python
"""The cluster file of ares and its secrets, on the controller.

The module makes the file, adds servers, and compares the file with the inventory.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_file
short_description: Make the cluster file of ares and its secrets, or add servers to it
description:
  - Runs on the controller, where the package C(ares-storage) must be installed for the interpreter of the task.
  - A cluster file that is there is kept. Servers of the inventory that it lacks are added, with identities and keys of their own; C([initial]) and
    what is there of other processes is never changed, for clients start from it.
  - No secret is returned. Secrets are files of mode 600 below O(directory).
options:
  directory:
    description: Of the cluster, on the controller.
    type: path
    required: true
  name:
    description: Of the cluster.
    type: str
    required: true
  servers:
    description: A dictionary each, with V(id), V(address), V(http), V(data), V(site) and V(spare); a spare one is in no configuration.
    type: list
    elements: dict
    required: true
  members:
    description: A dictionary each for the consensus members, with V(id), V(address), V(raft), V(http) and V(data).
    type: list
    elements: dict
    default: []
  durability:
    description: What a server's acknowledgement outlasts.
    type: str
    choices: [fsync, memory]
    default: fsync
  security:
    description: V(curve) gives everybody a key.
    type: str
    choices: [curve, none]
    default: curve
  initial:
    description: Of the first configuration V(dap), V(k), V(delta), V(allow_no_faults).
    type: dict
    default: {dap: abd}
  options:
    description: Other keys and tables of the file, such as V(limits), V(scrub), V(tracing), V(autopilot), V(client), V(etcd), V(transport).
    type: dict
    default: {}
  fresh:
    description: Begin as another cluster. What is in O(directory) is removed.
    type: bool
    default: false
author:
  - the ares project (@ares-storage)
"""

EXAMPLES = r"""
- name: Make the cluster file
  ares.storage.cluster_file:
    directory: ~/.local/share/ares/orders
    name: orders
    servers:
      - {id: s0, address: "10.0.0.10:7400", http: "127.0.0.1:7410", data: /var/lib/ares/s0, spare: false}
  delegate_to: localhost
"""

RETURN = r"""
path:
  description: Of the cluster file.
  type: str
  returned: always
added:
  description: Ids of the processes that were added.
  type: list
  elements: str
  returned: always
left:
  description: Ids of processes in the file that the inventory does not have.
  type: list
  elements: str
  returned: always
"""

import secrets
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

KEPT = ("address", "raft", "http", "data")
"""Settings of a process in the file that the inventory must repeat.

The file decides; another value would be another server.
"""


def table(given: dict, **more: str) -> dict:
    """Return the process in the form of the cluster file."""
    return {key: given[key] for key in ("id", *KEPT, "site") if given.get(key)} | {
        key: value for key, value in more.items() if value
    }


def tables(parameters: dict, public: dict[str, str]) -> dict:
    """Return a new cluster file, as TOML's values.

    ``public`` has the public keys by id; empty without keys.
    """
    from ares.cluster.cluster_file import PASSWORD_NAME
    from ares.cluster.cluster_keys import DECISIONS_ID, FIRST_CLIENT, KEYS_NAME
    from ares.cluster.home import new_identity
    from ares.cluster.tables import FORMAT

    members = parameters["members"]
    initial = {
        key: value
        for key, value in parameters["initial"].items()
        if value not in (None, "", 0, False)
    }
    values = {
        "format": FORMAT,
        "name": parameters["name"],
        "durability": parameters["durability"],
        "security": parameters["security"],
        "server": [
            table(one, identity=new_identity(), public_key=public.get(one["id"], ""))
            for one in parameters["servers"]
        ],
        "consensus": [table(one, public_key=public.get(one["id"], "")) for one in members],
        "initial": {"servers": [one["id"] for one in parameters["servers"] if not one.get("spare")]}
        | initial,
    }
    if members:
        values["consensus_password"] = PASSWORD_NAME
    if DECISIONS_ID in public:
        values["decision_key"] = public[DECISIONS_ID]
    options = dict(parameters["options"])
    if public:
        options["client"] = {"key": f"{KEYS_NAME}/{FIRST_CLIENT}.secret"} | options.get(
            "client", {}
        )
    return values | options


REMARKS = {
    "format": """\
# Made from an inventory, and kept by hand from then on: what is edited here stays, and roles give it to every host. New hosts are added at the end.
""",
    "initial": """
# Every client starts from this table: never edit it while the cluster holds data, use `ares-cli reconfig`.
""",
}


def text_of(values: dict, path: Path) -> str:
    """Return the text of the cluster file, read back by the checks of every process.

    Raises :class:`ares.BadInput`.
    """
    import msgspec

    from ares.cluster.settings import Settings
    from ares.cluster.tables import FileTable, written

    try:
        text = written(
            msgspec.convert(
                values, FileTable, strict=False, dec_hook=lambda kind, value: kind(value)
            ),
            REMARKS,
        )
    except msgspec.ValidationError as error:
        raise ValueError(f"the cluster file cannot be like that: {error}") from error
    Settings.parse(text, path)
    return text


def create(parameters: dict, path: Path, check_mode: bool) -> list[str]:
    """Make the file and the secrets, and return the ids of all processes."""
    from ares.cluster.cluster_file import PASSWORD_NAME
    from ares.cluster.cluster_keys import new_keys, write_keys
    from ares.machine.trusted_files import MADE_FOR_ALL, make_directory, write_new
    from ares.security.keys import write_secret

    ids = [one["id"] for one in [*parameters["servers"], *parameters["members"]]]
    keys = new_keys(ids, len(parameters["members"])) if parameters["security"] == "curve" else {}
    text = text_of(tables(parameters, {id: pair.public for id, pair in keys.items()}), path)
    if not check_mode:
        make_directory(path.parent)
        if parameters["members"]:
            write_secret(path.parent / PASSWORD_NAME, secrets.token_urlsafe(32))
        if keys:
            write_keys(keys, path.parent)
        write_new(path, text, MADE_FOR_ALL)  # last: the file makes the cluster exist
    return ids


def extend(parameters: dict, path: Path, check_mode: bool) -> tuple[list[str], list[str]]:
    """Add the servers that the file lacks.

    Return their ids, and the ids of processes that the inventory lacks.
    """
    import msgspec

    from ares.cluster.cluster_keys import KEYS_NAME
    from ares.cluster.home import new_identity
    from ares.cluster.settings import Settings
    from ares.cluster.tables import ServerSettings, decode, lines
    from ares.machine.trusted_files import replace_durably
    from ares.security.keys import SecretKey, write_secret

    text = path.read_text(encoding="utf-8")
    values = msgspec.to_builtins(decode(text, path), enc_hook=str)
    there = {one["id"]: one for one in [*values["server"], *values["consensus"]]}
    given = {one["id"]: one for one in [*parameters["servers"], *parameters["members"]]}
    for id in given.keys() & there.keys():
        for key in KEPT:
            found, wanted = there[id].get(key) or "", given[id].get(key) or ""
            if found != wanted:
                why = f"the inventory says {key} = {wanted!r} of {id}, and {path} says {found!r}"
                raise ValueError(
                    f"{why}. Edit that file if the process moved with its data; nothing was changed"
                )
    added = [one for one in parameters["servers"] if one["id"] not in there]
    if members := [one["id"] for one in parameters["members"] if one["id"] not in there]:
        raise ValueError(
            f"{', '.join(members)}: the consensus members of a cluster are those that it began with; nothing was changed"
        )
    if values["name"] != parameters["name"]:
        raise ValueError(
            f"{path} is of the cluster {values['name']!r}, not {parameters['name']!r}; nothing was changed"
        )
    pairs = (
        {one["id"]: SecretKey.generate() for one in added}
        if values.get("security") == "curve"
        else {}
    )
    for one in added:
        given_values = table(
            one, identity=new_identity(), public_key=pairs[one["id"]].public if pairs else ""
        )
        text += f"\n[[server]]\n{lines(msgspec.convert(given_values, ServerSettings, dec_hook=lambda kind, value: kind(value)))}"
    Settings.parse(text, path)
    if added and not check_mode:
        for id, pair in pairs.items():
            secret = path.parent / KEYS_NAME / f"{id}.secret"
            secret.unlink(
                missing_ok=True
            )  # from a run that ended before the file was written: its public half is lost
            write_secret(secret, pair.secret.hex())
        replace_durably(path, text)
    return [one["id"] for one in added], sorted(there.keys() - given.keys())


def act(module: AnsibleModule) -> dict:
    """Make the file, or add to it."""
    from ares.cluster.settings import FILE_NAME

    parameters = module.params
    directory = Path(parameters["directory"]).expanduser()
    path = directory / FILE_NAME
    fresh = parameters["fresh"] and path.exists()
    if fresh and not module.check_mode:
        for name in ("keys", "secrets"):
            shutil.rmtree(directory / name, ignore_errors=True)
        path.unlink()
    if path.exists() and not fresh:
        added, left = extend(parameters, path, module.check_mode)
    else:
        for name in ("keys", "secrets"):  # from a run that ended before the file was written
            if not module.check_mode:
                shutil.rmtree(directory / name, ignore_errors=True)
        added, left = create(parameters, path, module.check_mode), []
    return {"changed": bool(added), "path": str(path), "added": added, "left": left}


def main() -> None:
    """Run the module for Ansible."""
    module = AnsibleModule(
        {
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "servers": {"type": "list", "elements": "dict", "required": True},
            "members": {"type": "list", "elements": "dict", "default": []},
            "durability": {"type": "str", "choices": ["fsync", "memory"], "default": "fsync"},
            "security": {"type": "str", "choices": ["curve", "none"], "default": "curve"},
            "initial": {"type": "dict", "default": {"dap": "abd"}},
            "options": {"type": "dict", "default": {}},
            "fresh": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        from ares.model.errors import AresError
    except ImportError as error:
        why = "pip install 'ares-storage[ansible]' where ansible-playbook is, or set common_controller_python"
        module.fail_json(
            msg=f"the package of ares is not installed on the controller, for {module.params['directory']}: {error}. {why}"
        )
    try:
        module.exit_json(**act(module))
    except (AresError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
