#!/usr/bin/env bash
# Builds the NATS server with Go, once, into a cache outside of the repository, and prints the path of the binary. Two minutes on two cores.
#
#   experiments/build_nats.sh        then: .venv/bin/python -m experiments.logs --only peers
set -euo pipefail
version=v2.15.2
cache="$HOME/.cache/ares"
binary="$cache/nats-server-$version"
if [ ! -x "$binary" ]; then
    command -v go >/dev/null || { echo "Go is needed: https://go.dev/dl" >&2; exit 1; }
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    GOBIN="$work" go install "github.com/nats-io/nats-server/v2@$version" >&2
    mkdir -p "$cache"
    mv "$work/nats-server" "$binary"
fi
echo "$binary"
