"""Action plugins that run modules of this collection without Ansible's wrapper.

The wrapper brings half a megabyte of Ansible to the host, and Python compiles this for each task
again: 0.5 s of processor for a host and task, and a round of an experiment has thirty tasks. This
plugin gives the module's own text to the host's Python, with a stand-in for AnsibleModule: 0.15 s.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from shlex import quote
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible.plugins.action import ActionBase

PLUGINS = Path(__file__).parents[1]
SHARED_PACKAGE = "ansible_collections.ares.storage.plugins.module_utils."

REMOTE_PROGRAM = """
import json, os, sys, types
class AnsibleModule:
    KINDS = {{
        "float": float, "int": int, "str": str, "path": os.path.expanduser,
        "bool": lambda said: said in (True, "true"),
    }}
    def __init__(self, argument_spec, required_if=(), supports_check_mode=False):
        given, self.check_mode, self.params = ARGUMENTS, CHECK_MODE, {{}}
        if unknown := set(given) - set(argument_spec):
            self.fail_json(msg="there are no parameters " + ", ".join(sorted(unknown)))
        for name, spec in argument_spec.items():
            value = given.get(name, spec.get("default"))
            kind = self.KINDS.get(spec.get("type", "str"))
            self.params[name] = kind(value) if kind and value is not None else value
            missing = spec.get("required") and value is None
            if missing or "choices" in spec and value not in spec["choices"]:
                self.fail_json(msg="%s cannot be %r" % (name, value))
        for name, value, needed in required_if:
            if self.params[name] == value and any(self.params[other] is None for other in needed):
                words = (name, value, ", ".join(needed))
                self.fail_json(msg="%s is %s, so %s must be given" % words)
    def exit_json(self, **result):
        print(MARK + json.dumps(result)); sys.exit(0)
    def fail_json(self, **result):
        print(MARK + json.dumps(dict(result, failed=True))); sys.exit(0)
ARGUMENTS, SOURCES = json.loads({arguments!r}), json.loads({sources!r})
CHECK_MODE, MARK = {check_mode!r}, {mark!r}
basic = sys.modules["ansible.module_utils.basic"] = types.ModuleType("ansible.module_utils.basic")
basic.AnsibleModule = AnsibleModule
for name, text in SOURCES.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""
OUTPUT_MARK = "ares.storage says: "


def sources_of(name: str) -> dict[str, str]:
    """Return the texts of a module and of its parts of module_utils, by name, in order of use."""
    found: dict[str, str] = {}

    def add(key: str, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        for other in re.findall(
            rf"^from {re.escape(SHARED_PACKAGE)}(\w+) import", text, re.MULTILINE
        ):
            if SHARED_PACKAGE + other not in found:
                add(SHARED_PACKAGE + other, PLUGINS / "module_utils" / f"{other}.py")
        found[key] = text

    add(name, PLUGINS / "modules" / f"{name}.py")
    return found


class PlainModule(ActionBase):
    """The action of a module that needs only its parameters from Ansible on the host."""

    _requires_connection = True
    name: str

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result, given = super().run(tmp, task_vars), task_vars or {}
        interpreter = str(given.get("ansible_python_interpreter") or "")
        interpreter = interpreter if interpreter.startswith("/") else "/usr/bin/python3"
        arguments = json.dumps(self._task.args, default=str)
        program = REMOTE_PROGRAM.format(
            arguments=arguments,
            check_mode=self._task.check_mode,
            sources=json.dumps(sources_of(self.name)),
            mark=OUTPUT_MARK,
        )
        command = f"{self._compute_environment_string()} {quote(interpreter)} -".strip()
        ended = self._low_level_execute_command(
            command, in_data=program.encode(), executable="/bin/sh"
        )
        answer = next(
            (line for line in ended["stdout"].splitlines() if line.startswith(OUTPUT_MARK)), None
        )
        if answer is None:
            raise AnsibleActionFail(
                f"{interpreter} ended with status {ended['rc']}: "
                f"{(ended['stderr'] or ended['stdout']).strip()[-1000:]}"
            )
        return result | json.loads(answer.removeprefix(OUTPUT_MARK))
