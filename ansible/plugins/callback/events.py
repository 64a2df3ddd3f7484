"""Events of a playbook as lines of JSON, for the program that runs the playbook."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: events
type: stdout
short_description: Lines of JSON instead of text
description:
  - A line for each play as it begins, and for each host and task as it ends, with C(time),
    C(event), C(play), C(task), C(host), and the C(message) of a failure. Results are left out,
    except the facts that a task sets.
"""

MESSAGE_CHARACTERS = 4000


class CallbackModule(CallbackBase):
    """Callback that Ansible calls with events."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "ares.storage.events"

    def __init__(self) -> None:
        super().__init__()
        self._play = ""

    def _write_event(self, event: str, **more: Any) -> None:
        sys.stdout.write(
            json.dumps({"time": time.time(), "event": event, "play": self._play, **more}) + "\n"
        )
        sys.stdout.flush()

    def _ended(self, event: str, result: Any, **more: Any) -> None:
        self._write_event(event, task=result._task.get_name(), host=result._host.get_name(), **more)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play.get_name()
        self._write_event("play")

    def v2_runner_on_ok(self, result: Any) -> None:
        facts = (
            result._result.get("ansible_facts")
            if result._task.action.endswith("set_fact")
            else None
        )
        self._ended("ok", result, **({"facts": facts} if facts else {}))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        details = result._result
        message = (
            details.get("msg")
            or details.get("stderr")
            or details.get("censored")
            or "it does not say why"
        )
        self._ended(
            "ignored" if ignore_errors else "failed",
            result,
            message=str(message)[:MESSAGE_CHARACTERS],
        )

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._ended(
            "unreachable", result, message=str(result._result.get("msg") or "")[:MESSAGE_CHARACTERS]
        )
