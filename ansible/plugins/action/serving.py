"""The module `serving`, without Ansible's wrapper (plugins/plugin_utils/plain.py)."""

from __future__ import annotations

from ansible_collections.ares.storage.plugins.plugin_utils.plain import PlainModule


class ActionModule(PlainModule):
    """Action for the controller."""

    name = "serving"
