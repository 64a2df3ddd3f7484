#!/usr/bin/env bash
# Builds Jaeger v2 with Go, once, into a cache outside of the repository, and prints the path of the binary. Ten to twenty minutes on two cores.
#
#   experiments/build_jaeger.sh        then: .venv/bin/python -m pytest tests/tracing/test_jaeger.py
set -euo pipefail
version=v1.76.0   # the module of Jaeger v2 keeps the numbers of v1
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ares"
binary="$cache/jaeger-$version"
if [ ! -x "$binary" ]; then
    command -v go >/dev/null || { echo "Go is needed: https://go.dev/dl" >&2; exit 1; }
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    go mod init jaeger-build >&2
    # Checksums that the database does not have come from Jaeger's own go.sum.
    source="$(go mod download -json "github.com/jaegertracing/jaeger@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"
    install -m 644 "$source/go.sum" go.sum
    go get "github.com/jaegertracing/jaeger/cmd/jaeger@$version" >&2
    go build -o "$work/jaeger" github.com/jaegertracing/jaeger/cmd/jaeger >&2
    mkdir -p "$cache"
    mv "$work/jaeger" "$binary"
fi
echo "$binary"
