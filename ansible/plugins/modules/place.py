#!/usr/bin/python
"""Directories and small files of an owner, in a single step: a distant host is asked only once."""

from __future__ import annotations

DOCUMENTATION = r"""
module: place
short_description: Make directories and write small files, all of one owner
description:
  - Files are written beside the old files and renamed, so that no process reads half of a file.
  - Contents are never returned, because they include secrets.
options:
  owner:
    description: Owner of the directories and files. Empty for the user of the module.
    type: str
    default: ''
  directories:
    description: A dictionary of modes, such as V(0700), by path. Missing parents are made, readable
      for all users.
    type: dict
    default: {}
  files:
    description: Contents of files, by path.
    type: dict
    default: {}
  modes:
    description: Modes of these files, by path.
    type: dict
    default: {}
author:
  - the ares project (@ares-storage)
"""

EXAMPLES = r"""
- name: Write a secret
  ares.storage.place:
    owner: ares
    directories: {/etc/ares/keys: "0700"}
    files: {/etc/ares/keys/s0.secret: "{{ the_secret }}"}
    modes: {/etc/ares/keys/s0.secret: "0600"}
"""

RETURN = r"""
paths:
  description: Paths that were made or changed.
  type: list
  elements: str
  returned: always
"""

import os
import pwd
import stat
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def fits(path: Path, mode: int, uid: int) -> bool:
    """Return whether the existing file has this mode and owner."""
    found = path.lstat()
    return stat.S_IMODE(found.st_mode) == mode and found.st_uid == uid


def make_directory(path: Path, mode: int, uid: int, gid: int, check_mode: bool) -> bool:
    """Make a directory, and return whether the host changed.

    Raises OSError, also if a file of another kind has the name.
    """
    if path.is_dir() and fits(path, mode, uid):
        return False
    if not check_mode:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, uid, gid)
        path.chmod(mode)
    return True


def write(path: Path, data: bytes, mode: int, uid: int, gid: int, check_mode: bool) -> bool:
    """Write a file, and return whether the host changed.

    A link in its place is replaced, never followed.
    """
    if (
        path.is_file()
        and not path.is_symlink()
        and fits(path, mode, uid)
        and path.read_bytes() == data
    ):
        return False
    if not check_mode:
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    return True


def account_of(owner: str, check_mode: bool) -> pwd.struct_passwd | None:
    """Return the account; None for an account that an earlier task would have made.

    Raises:
        KeyError: There is no such account, and this is no check.
    """
    try:
        return pwd.getpwnam(owner) if owner else pwd.getpwuid(os.geteuid())
    except KeyError:
        if check_mode:
            return None
        raise


def main() -> None:
    """Run the module for Ansible."""
    module = AnsibleModule(
        {
            "owner": {"type": "str", "default": ""},
            "directories": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}, "no_log": True},
            "modes": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    parameters, paths = module.params, []
    path = ""
    try:
        account = account_of(parameters["owner"], module.check_mode)
        if account is None:
            module.exit_json(changed=True, paths=[*parameters["directories"], *parameters["files"]])
        owner = (account.pw_uid, account.pw_gid, module.check_mode)
        for path, mode in parameters["directories"].items():
            paths += [path] if make_directory(Path(path), int(str(mode), 8), *owner) else []
        for path, content in parameters["files"].items():
            paths += (
                [path]
                if write(
                    Path(path),
                    str(content).encode(),
                    int(str(parameters["modes"][path]), 8),
                    *owner,
                )
                else []
            )
    except (OSError, KeyError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        module.fail_json(
            msg=f"{path or parameters['owner']}: {why}. Before it was done: "
            f"{', '.join(paths) or 'nothing'}"
        )
    module.exit_json(changed=bool(paths), paths=paths)


if __name__ == "__main__":
    main()
