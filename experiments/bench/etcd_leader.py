"""The leader of a cluster of etcd, as reported by the members."""

import http.client
import json

LEADER_ASK_S = 2.0


def leads(endpoint: str) -> bool:
    """Return whether the member at ADDRESS:PORT says that it is the leader."""
    connection = http.client.HTTPConnection(endpoint, timeout=LEADER_ASK_S)
    try:
        connection.request("POST", "/v3/maintenance/status", "{}")
        status = json.loads(connection.getresponse().read(65536))
        return bool(status["leader"] == status["header"]["member_id"])
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return False
    finally:
        connection.close()
