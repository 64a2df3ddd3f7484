"""The leader of a cluster of etcd, as reported by the members."""

import http.client
import json
from collections.abc import Sequence
from typing import Any

LEADER_ASK_S = 2.0


def _status(endpoint: str) -> dict[str, Any]:
    """Return the status of the member at ADDRESS:PORT; empty without an answer."""
    connection = http.client.HTTPConnection(endpoint, timeout=LEADER_ASK_S)
    try:
        connection.request("POST", "/v3/maintenance/status", "{}")
        status: dict[str, Any] = json.loads(connection.getresponse().read(65536))
        return status
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()


def leads(endpoint: str) -> bool:
    """Return whether the member at ADDRESS:PORT says that it is the leader."""
    status = _status(endpoint)
    return bool(status) and status.get("leader") == status.get("header", {}).get("member_id")


def leader(addresses: Sequence[str]) -> int | None:
    """Return the position in ``addresses`` of the leader on which all members agree, or `None`."""
    statuses = [_status(address) for address in addresses]
    leaders = {status.get("leader") for status in statuses}
    if len(leaders) != 1 or leaders <= {None, "0"}:
        return None
    (leader,) = leaders
    return [status["header"]["member_id"] for status in statuses].index(leader)
