"""A program in place of Jaeger, of InfluxDB 2 or of Grafana, for tests of the role observability.

It listens as its configuration says, answers the role's questions, and keeps every request in the
file `requests` beside the configuration: a line of JSON each.
"""

import configparser
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml


class StandIn(ThreadingHTTPServer):
    """An HTTP server with answers by path."""

    daemon_threads = True
    set_up = False
    kept: Path

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Return status and content of the answer."""
        if path == "/api/v2/setup":
            before, self.set_up = self.set_up, self.set_up or method == "POST"
            return (201 if method == "POST" else 200), {"allowed": not before}
        if path.startswith("/api/v2/buckets"):
            return 200, {"buckets": [{"name": "ares"}]}
        return (204 if path.startswith(("/ping", "/api/v2/write")) else 200), {}


class StandInHandler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        with self.server.kept.open("a") as kept:
            seen = {"method": self.command, "path": self.path, "body": body.decode("latin-1")}
            kept.write(json.dumps(seen | {"token": self.headers["Authorization"]}) + "\n")
        status, content = self.server.answer(self.command, self.path, body)
        answer = b"" if status == 204 else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


def listening() -> tuple[Path, list[str]]:
    """Return the configuration, and the addresses to listen on."""
    if directory := os.environ.get("INFLUXD_CONFIG_PATH"):
        path = Path(directory) / "config.yaml"
        return path, [yaml.safe_load(path.read_text())["http-bind-address"]]
    path = Path(sys.argv[sys.argv.index("--config") + 1])
    if path.suffix == ".ini":
        settings = configparser.ConfigParser(interpolation=None)
        settings.read(path)
        server = settings["server"]
        return path, [f"{server['http_addr']}:{server['http_port']}"]
    told = yaml.safe_load(path.read_text())
    query, otlp = told["extensions"]["jaeger_query"], told["receivers"]["otlp"]["protocols"]
    return path, [part["endpoint"] for part in (query["http"], query["grpc"], *otlp.values())]


def main() -> None:
    """Answer `version`, or serve until the end."""
    if sys.argv[1:] == ["version"]:
        sys.stdout.write("InfluxDB v2.7.12 (git: 0000000) build_date: 2025-05-20T00:00:00Z\n")
        return
    path, addresses = listening()
    for address in addresses:
        host, _, port = address.rpartition(":")
        server = StandIn((host, int(port)), StandInHandler)
        server.kept = path.with_name("requests")
        threading.Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    main()
