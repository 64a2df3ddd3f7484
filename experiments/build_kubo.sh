#!/usr/bin/env bash
# Builds IPFS (kubo) with Go, once, into a cache outside of the repository, and prints the path of the binary. Five minutes on two cores.
#
#   experiments/build_kubo.sh        then: sudo .venv/bin/python -m experiments.sites --quick --stores ipfs
set -euo pipefail
version=v0.39.0
cache="$HOME/.cache/ares"
binary="$cache/kubo-$version"
if [ ! -x "$binary" ]; then
    command -v go >/dev/null || { echo "Go is needed: https://go.dev/dl" >&2; exit 1; }
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    # The release with its own go.mod and go.sum: no other versions are asked for, as `go install` would.
    source="$(cd "$work" && go mod download -json "github.com/ipfs/kubo@$version" | sed -n 's/^\s*"Dir": "\(.*\)",$/\1/p')"
    cp -r "$source" "$work/kubo"
    chmod -R u+w "$work/kubo"
    # A library of it does not build with Go 1.26; `go` gets the release of Go that is named here.
    (cd "$work/kubo" && GOTOOLCHAIN=go1.25.5 go build -mod=readonly -o "$work/ipfs" ./cmd/ipfs) >&2
    mkdir -p "$cache"
    mv "$work/ipfs" "$binary"
fi
echo "$binary"
