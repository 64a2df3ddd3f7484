"""Fetch of a directory of a host: tar on the host, a single file, unpacked on the controller.

The file goes over the connection. The host needs a shell and no Python.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible.plugins.action import ActionBase


def unpack(packed: Path, into: Path) -> int:
    """Unpack plain files below ``into``, and return their number. Raises OSError, TarError.

    All other entries are ignored: data from a host is not trusted.
    """
    count = 0
    with tarfile.open(packed) as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if (
                member.isfile()
                and not name.is_absolute()
                and ".." not in name.parts
                and (source := archive.extractfile(member))
            ):
                path = into / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(source, file)
                count += 1
    return count


class ActionModule(ActionBase):
    """Action for the controller."""

    _requires_connection = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        _, given = self.validate_argument_spec(
            {"src": {"type": "path", "required": True}, "dest": {"type": "path", "required": True}}
        )
        result = super().run(tmp, task_vars)
        src, dest = given["src"].rstrip("/"), Path(given["dest"])
        packed = f"{src}.tar.gz"
        if self._task.check_mode:
            return result | {"changed": True, "files": 0}
        ended = self._low_level_execute_command(
            f"tar -C {quote(src)} -czf {quote(packed)} . && chmod 644 {quote(packed)}"
        )
        if ended["rc"]:
            raise AnsibleActionFail(
                f"{src} cannot be packed: {(ended['stderr'] or ended['stdout']).strip()[-300:]}"
            )
        try:
            dest.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetched-", dir=dest.parent) as place:
                local = Path(place) / "logs.tar.gz"
                self._connection.fetch_file(packed, str(local))
                files = unpack(local, dest)
        except (OSError, tarfile.TarError) as error:
            raise AnsibleActionFail(
                f"the logs of this host cannot be kept in {dest}: {error}"
            ) from error
        return result | {"changed": True, "files": files}
