"""Files of tests that run once in CI: `make test-pure`, without the compiled core, skips them.

The skipped tests take the same path with both cores, or judge no values of users.
"""

from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parent

WITHOUT_CORE: dict[str, tuple[str, ...]] = {
    "architecture": (),
    "bucket": (),
    "consensus": (),
    "fragment": ("test_divide.py", "test_rabin.py", "test_store.py"),
    "gateway": ("access", "actions", "test_gateway_app.py"),
    "journal": (
        *("test_anchor.py", "test_compaction.py", "test_damage.py", "test_dropped_names.py"),
        *(
            "test_durable_server.py",
            "test_inline.py",
            "test_journal_contract.py",
            "test_journal_full_disk.py",
        ),
        *("test_journal_throttle.py", "test_random.py", "test_segment_scan.py", "test_torn.py"),
    ),
    "paper": (),
    "property": (
        *("test_compiled_client.py", "test_replay_properties.py"),
        *("test_replica_properties.py", "test_table_properties.py"),
    ),
    "protocol": (),
    "results": (),
    "sharedlog": (),
    "tracing": ("test_operation_log.py",),
    "transport": ("test_turns.py",),
    "unit": (
        *("test_ahead_copies.py", "test_blocking.py", "test_domain_locator.py"),
        *("test_object_table.py", "test_peers_bounds.py", "test_query_list.py", "test_replica.py"),
        *("test_settings_options.py", "test_storage_server.py", "test_tag_bounds.py"),
        *("test_usage_counts.py", "test_value_bounds.py"),
    ),
    "verify": (),
}
"""Folders whose tests meet no core, each with its exceptions: files that meet the core.

The core changes no path of these tests: tests/conftest.py gives them :class:`CoreTrap` as core.
"""

SURROUNDINGS = (
    *("ansible", "autopilot", "experiments", "client/test_log_commands.py"),
    *("client/test_bucket_commands.py", "gateway/access/test_key_commands.py"),
    *("filesystem/test_abstract.py", "filesystem/test_bucket_filesystem.py"),
    *(
        "fuzz/test_command_line.py",
        "gateway/clients",
        "gateway/test_gateway_processes.py",
        "operation/test_log_level.py",
    ),
    *("operation/test_dashboard_queries.py", "operation/test_top.py", "process/test_cli_files.py"),
    *("process/test_cli_trace.py", "process/test_demo.py", "process/test_etcd_cluster.py"),
    *("process/test_first_start.py", "process/test_mirrors.py", "process/test_pages.py"),
    *("process/test_sites_processes.py", "process/test_up_down.py"),
    *("process/test_working_directory.py", "security/test_keys_hidden.py"),
    *("simulation/test_log_controls.py", "simulation/test_log_scenario.py"),
)
"""Files about the surroundings of servers and clients.

The subject is a command, a page, a terminal, a deployment, a site, a round of experiments, the
autopilot, or a log. The values of users are the subject of other files, which run in both lanes:
under kills, restarts, full disks, keys, strangers, and with the commands for objects.
"""


class CoreTrap:
    """A core that no test may touch."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(
            f"a test without the compiled core asks for its {name}: name the test's file among the "
            "exceptions of its folder in tests/lanes.py; `make test-pure` runs it then, too"
        )


def meets_no_core(file: Path) -> bool:
    """Return whether the tests of ``file`` meet no core."""
    folder, *rest = file.relative_to(_TESTS).parts
    return bool(rest) and folder in WITHOUT_CORE and rest[0] not in WITHOUT_CORE[folder]


def runs_once(path: Path) -> bool:
    """Return whether `make test-pure` leaves out ``path``, a file or a folder."""
    if not path.is_relative_to(_TESTS):
        return False
    if path.is_dir() or path.name in ("__init__.py", "conftest.py"):
        return path.relative_to(_TESTS).as_posix() in SURROUNDINGS
    return meets_no_core(path) or any(path.is_relative_to(_TESTS / each) for each in SURROUNDINGS)
