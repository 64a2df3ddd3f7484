#!/usr/bin/python
"""The cluster file of ares and its secrets, on the controller.

The module makes the file, adds servers, and compares the file with the inventory.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_file
short_description: Make the cluster file of ares and its secrets, or add servers to it
description:
  - Runs on the controller, where the package C(ares-storage) must be installed for the interpreter
    of the task.
  - An existing cluster file is kept. Missing servers of the inventory are added, with identities
    and keys of their own, and the keys of O(options) are set; the rest of the file stays.
    C([initial]) and the entries of other processes are never changed, because clients start from
    them.
  - Another O(durability) or O(security) than the file has is refused.
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
    description: A dictionary each, with V(id), V(address), V(http), V(data), V(site) and V(spare);
      a spare server is in no configuration.
    type: list
    elements: dict
    required: true
  members:
    description: A dictionary each for the consensus members, with V(id), V(address), V(raft),
      V(http), V(data) and V(site).
    type: list
    elements: dict
    default: []
  durability:
    description: The failures that acknowledged data survives, V(fsync) a restart of servers,
      V(memory) none of all servers.
    type: str
    choices: [fsync, memory]
    default: fsync
  security:
    description: V(curve) gives every process and client a key.
    type: str
    choices: [curve, none]
    default: curve
  initial:
    description: Of the first configuration V(dap), V(k), V(delta), V(allow_no_faults).
    type: dict
    default: {dap: abd}
  options:
    description:
      - Other keys and tables of the file, such as V(limits), V(scrub), V(tracing), V(autopilot),
        V(client), V(etcd), V(transport).
      - A key that is not named keeps the value that it has in the file.
    type: dict
    default: {}
  passed_over:
    description: Hosts of the cluster that the play leaves out, by --limit. The file keeps their
      processes; a new file needs all of them.
    type: list
    elements: str
    default: []
  fresh:
    description: Begin as another cluster. The content of O(directory) is removed.
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
      - id: s0
        address: "10.0.0.10:7400"
        http: "127.0.0.1:7410"
        data: /var/lib/ares/s0
        spare: false
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
set:
  description: Keys of options that were set.
  type: list
  elements: str
  returned: always
kept:
  description: A sentence for each setting of the inventory that the file of a cluster does not
    follow.
  type: list
  elements: str
  returned: always
left:
  description: Ids of processes in the file that the inventory does not have.
  type: list
  elements: str
  returned: always
"""

import json
import re
import secrets
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

KEPT_SETTINGS = ("address", "raft", "http", "data")
"""Settings of a process in the file that the inventory must repeat.

The file decides; another value would be another server.
"""


FIXED = ("durability", "security")
"""Keys with a value for the whole life of a cluster."""

NO_OPTIONS = ("format", "name", "server", "consensus", "initial", *FIXED)
"""Keys and tables with a separate parameter, or derived from other settings."""


def table(given: dict, **more: str) -> dict:
    """Return the process in the form of the cluster file."""
    return {key: given[key] for key in ("id", *KEPT_SETTINGS, "site") if given.get(key)} | {
        key: value for key, value in more.items() if value
    }


def tables(parameters: dict, public: dict[str, str]) -> dict:
    """Return a new cluster file, as TOML's values.

    ``public`` has the public keys by id; empty without keys.
    """
    from ares.cluster.cluster_keys import DECISIONS_ID, FIRST_CLIENT, KEYS_NAME
    from ares.cluster.home import new_identity
    from ares.cluster.new_cluster import PASSWORD_NAME
    from ares.cluster.tables import CLUSTER_FORMAT

    members = parameters["members"]
    initial = {
        key: value
        for key, value in parameters["initial"].items()
        if value not in (None, "", 0, False)
    }
    values = {
        "format": CLUSTER_FORMAT,
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
# Made from an inventory, and kept by hand afterwards: edits of this file stay, and roles give the
# file to every host. New hosts are added at the end.
""",
    "initial": """
# Every client starts from this table: never edit it while the cluster holds data, use
# `ares-cli reconfig`.
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
    from ares.cluster.cluster_keys import new_keys, write_keys
    from ares.cluster.new_cluster import PASSWORD_NAME
    from ares.platform.trusted_files import MADE_FOR_ALL, make_directory, write_new
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


def extend(parameters: dict, path: Path, check_mode: bool) -> dict:
    """Add the servers that the file lacks, and set the options; return the result of the module."""
    import msgspec

    from ares.cluster.cluster_keys import KEYS_NAME
    from ares.cluster.settings import Settings
    from ares.cluster.tables import decode
    from ares.platform.replacement import replace_durably
    from ares.security.keys import SecretKey, write_secret

    before = path.read_text(encoding="utf-8")
    values = msgspec.to_builtins(decode(before, path), enc_hook=str)
    there = {one["id"]: one for one in [*values["server"], *values["consensus"]]}
    given = {one["id"]: one for one in [*parameters["servers"], *parameters["members"]]}
    refuse_other(parameters, values, there, given, path)
    added = [one for one in parameters["servers"] if one["id"] not in there]
    pairs = {}
    if values.get("security") == "curve":
        pairs = {one["id"]: SecretKey.generate() for one in added}
    text, keys = with_options(before, parameters["options"], path)
    text += "".join(server_text(one, pairs) for one in added)
    Settings.parse(text, path)
    if text != before and not check_mode:
        for id, pair in pairs.items():
            secret = path.parent / KEYS_NAME / f"{id}.secret"
            # from a run that ended before the file was written: its public half is lost
            secret.unlink(missing_ok=True)
            write_secret(secret, pair.secret.hex())
        replace_durably(path, text)
    return {
        "changed": text != before,
        "added": [one["id"] for one in added],
        "set": keys,
        "kept": kept(parameters, values, there, given),
        "left": [] if parameters["passed_over"] else sorted(there.keys() - given.keys()),
        "diff": {"before": before, "after": text, "before_header": str(path)},
    }


def refuse_other(parameters: dict, values: dict, there: dict, given: dict, path: Path) -> None:
    """Raise ValueError if the inventory contradicts the file.

    The inventory must mean the same cluster and the same processes.
    """
    for id in given.keys() & there.keys():
        for key in KEPT_SETTINGS:
            found, wanted = there[id].get(key) or "", given[id].get(key) or ""
            if found != wanted:
                why = f"the inventory says {key} = {wanted!r} of {id}, and {path} says {found!r}"
                raise ValueError(
                    f"{why}. Edit that file if the process moved with its data; nothing was changed"
                )
    if members := [one["id"] for one in parameters["members"] if one["id"] not in there]:
        raise ValueError(
            f"{', '.join(members)}: a cluster keeps its first consensus members; nothing was "
            "changed"
        )
    if values["name"] != parameters["name"]:
        raise ValueError(
            f"{path} is of the cluster {values['name']!r}, not {parameters['name']!r}; nothing "
            "was changed"
        )
    for key in FIXED:
        if (found := values[key] or "none") != parameters[key]:
            raise ValueError(
                f"the inventory says {key} = {parameters[key]!r}, and {path} says {found!r}. A "
                f"cluster keeps the {key} that it was made with: say common_{key}: {found}; "
                "nothing was changed"
            )


def kept(parameters: dict, values: dict, there: dict, given: dict) -> list[str]:
    """Return a sentence for each setting of the inventory that is without effect.

    A cluster keeps these settings from its file.
    """
    found = [
        (
            f"The inventory says {key} = {wanted} of the first configuration, and the cluster "
            f"began with {values['initial'][key]}. It stays in the file; scale_out.yml or "
            "ares-cli reconfig moves the domains."
        )
        for key, wanted in parameters["initial"].items()
        if wanted and key in values["initial"] and values["initial"][key] != wanted
    ]
    return found + [
        (
            f"The inventory says site = {one['site']} of {id}, and the file says "
            f"{there[id].get('site') or 'none'}, which holds."
        )
        for id, one in given.items()
        if id in there and one.get("site") and one["site"] != there[id].get("site")
    ]


def server_text(one: dict, pairs: dict) -> str:
    """Return the table of a new server."""
    import msgspec

    from ares.cluster.home import new_identity
    from ares.cluster.tables import ServerSettings, lines

    public = pairs[one["id"]].public if pairs else ""
    values = table(one, identity=new_identity(), public_key=public)
    made = msgspec.convert(values, ServerSettings, dec_hook=lambda kind, value: kind(value))
    return f"\n[[server]]\n{lines(made)}"


def with_options(text: str, options: dict, path: Path) -> tuple[str, list[str]]:
    """Return the text with these keys set, and the keys whose value changed."""
    import msgspec

    from ares.cluster.tables import FileTable, decode, written
    from ares.model.errors import BadInput
    from ares.platform.named_files import parse_toml

    if wrong := sorted(options.keys() & set(NO_OPTIONS)):
        raise ValueError(
            f"options of a cluster file cannot have {', '.join(wrong)}; nothing was changed"
        )
    now = msgspec.to_builtins(decode(text, path), enc_hook=str)
    wanted = parse_toml(text)
    for name, value in options.items():
        wanted[name] = wanted.get(name, {}) | value if isinstance(value, dict) else value
    try:
        made = msgspec.convert(
            wanted, FileTable, strict=False, dec_hook=lambda kind, value: kind(value)
        )
    except msgspec.ValidationError as error:
        raise ValueError(f"{path} cannot be like that: {error}; nothing was changed") from error
    decode(written(made, {}), path)  # says what is not allowed by itself
    goal, keys = msgspec.to_builtins(made, enc_hook=str), []
    for name in [name for name in options if goal[name] != now[name]]:
        values, old = (
            (goal[name], now[name] or {})
            if isinstance(goal[name], dict)
            else ({name: goal[name]}, {name: now[name]})
        )
        section = name if values is goal[name] else ""
        given = options[name] if section else values
        changed = {key: values[key] for key in given if key not in old or old[key] != values[key]}
        text = with_keys(text, section, changed)
        keys += [f"{section}.{key}".removeprefix(".") for key in changed] or [name]
    try:
        if msgspec.to_builtins(decode(text, path), enc_hook=str) == goal:
            return text, keys
        why = "the file writes them in another way"
    except BadInput as error:
        why = str(error)
    raise ValueError(
        f"{', '.join(keys)} of {path}: edit the file by hand ({why}); nothing was changed"
    )


def with_keys(text: str, section: str, values: dict) -> str:
    """Return the text with these keys in a table of the file, or at its top."""
    rows = text.splitlines(keepends=True)
    heads = [place for place, row in enumerate(rows) if row.lstrip().startswith("[")]
    begin = 0
    if section:
        own = [at for at in heads if re.match(rf"\s*\[\s*{section}\s*\]", rows[at])]
        if not own:
            rows += [f"\n[{section}]\n"]
            heads = [*heads, len(rows) - 1]
        begin = (own or heads)[-1] + 1
    end = next((place for place in heads if place >= begin), len(rows))
    while end > begin and (not rows[end - 1].strip() or rows[end - 1].lstrip().startswith("#")):
        end -= 1
    for key, value in values.items():
        row = f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
        for place in range(begin, end):
            if re.match(rf"\s*{key}\s*=", rows[place]):
                rows[place] = row
                break
        else:
            rows.insert(end, row)
            end += 1
    return "".join(rows)


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
        return extend(parameters, path, module.check_mode) | {"path": str(path)}
    if parameters["passed_over"]:
        raise ValueError(
            f"there is no {path} yet, and a new file is made from all hosts. Run this once "
            f"without --limit, which leaves out {', '.join(sorted(parameters['passed_over']))}. "
            "Nothing was made"
        )
    for name in ("keys", "secrets"):  # from a run that ended before the file was written
        if not module.check_mode:
            shutil.rmtree(directory / name, ignore_errors=True)
    added = create(parameters, path, module.check_mode)
    return {
        "changed": True,
        "path": str(path),
        "added": added,
        "set": [],
        "kept": [],
        "left": [],
    }


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
            "passed_over": {"type": "list", "elements": "str", "default": []},
            "fresh": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        from ares.model.errors import AresError
    except ImportError as error:
        why = (
            "pip install 'ares-storage[ansible]' where ansible-playbook is, or set "
            "common_controller_python"
        )
        module.fail_json(
            msg="the package of ares is not installed on the controller, for "
            f"{module.params['directory']}: {error}. {why}"
        )
    try:
        module.exit_json(**act(module))
    except (AresError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
