# The tasks of a checkout: `make` lists them. Only the targets experiments* need root; all
# packages are installed into .venv.

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
CORE := $(VENV)/.core-built
CORE_SECONDS := 1800
BENCH_STAMP := $(VENV)/.bench-installed
DOCS_STAMP := $(VENV)/.docs-installed
EXPERIMENTS := $(VENV)/bin/python -m experiments
BENCH := $(EXPERIMENTS).bench
# Set by images of containers; hundreds of test processes would compile each module again.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait as well as compute: four lanes use two thirds of two processors. The tests of a file share
# the fixtures of the file. The last files are short.
LANES := -n 6 --dist loadfile --no-loadscope-reorder
# Tests of the contract of transports, and of processes with the transport of ARES_TRANSPORT.
ON_LIBZMQ := tests/transport/test_transport_contract.py
ON_LIBZMQ += $(addprefix tests/process/test_,demo.py cli_objects.py durable_cluster.py durable_log.py secure_cluster.py)
TORTURE_MINUTES := 5
TORTURE_SEED := 3005

.DEFAULT_GOAL := help
.PHONY: help venv core demo test test-slow test-all test-pure test-libzmq check docs dashboards collection bench bench-quick bench-scale bench-moving experiments experiments-quick experiments-points clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(CORE) ## make .venv and install the package with everything for development

core: ## build the compiled core again, or fail; with cargo, other tasks build it after changes
	@rm -f $(CORE)
	@$(MAKE) --no-print-directory $(CORE)
	@$(VENV)/bin/ares-cli --version
	@test -e $(CORE)

demo: $(CORE) ## run a small cluster through crashes and reconfigurations, then stop it
	@$(VENV)/bin/ares-cli demo

test: $(CORE) ## run the tests, without the slow ones; 6 minutes on two processors
	@$(VENV)/bin/python -m pytest $(LANES) -m 'not slow'

test-slow: $(CORE) ## run the slow tests: hunts, fuzz, torture, deployments, rounds, tutorials, wheels
	@$(VENV)/bin/python -m pytest $(LANES) -m slow

test-all: $(CORE) ## run every test
	@$(VENV)/bin/python -m pytest $(LANES)

test-pure: $(STAMP) ## run the tests of servers and clients without the compiled core (tests/lanes.py)
	@ARES_PURE=1 $(VENV)/bin/python -m pytest $(LANES) -m 'not slow or process' --twice

test-libzmq: export ARES_TRANSPORT := libzmq
test-libzmq: $(CORE) ## run the demo, tests of processes and five minutes of torture on libzmq, side by side
	@$(VENV)/bin/ares-cli torture --minutes $(TORTURE_MINUTES) --seed $(TORTURE_SEED) & torture=$$!; \
		$(VENV)/bin/python -m pytest -n 2 --dist loadfile -p no:cacheprovider -m 'not slow' $(ON_LIBZMQ); tests=$$?; \
		wait $$torture && exit $$tests

check: $(STAMP) ## find mistakes without running the code: ruff, formatting, mypy, and with cargo rustfmt and clippy
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/mypy
	@! cargo fmt --version >/dev/null 2>&1 || cargo fmt --check --manifest-path core/Cargo.toml
	@! { cargo clippy --version && cargo fetch --locked --manifest-path core/Cargo.toml; } >/dev/null 2>&1 || \
		cargo clippy --quiet --locked --manifest-path core/Cargo.toml --target-dir core/target --features extension-module -- --deny warnings

docs: $(DOCS_STAMP) ## build the pages from docs/ and the docstrings into build/docs; a broken link fails
	@$(VENV)/bin/python -m mkdocs build --strict --quiet && echo "build/docs/index.html"

dashboards: ## write the dashboards for Grafana, packaging/grafana/*.json
	@$(PYTHON) packaging/grafana/dashboards.py && ls packaging/grafana/*.json

collection: $(STAMP) dashboards ## build the collection of Ansible with the dashboards, dist/ares-storage-*.tar.gz
	@$(VENV)/bin/ansible-galaxy collection build ansible --output-path dist --force

bench: $(BENCH_STAMP) ## measure every goal, and ares beside every installed store, an hour; ends with the page of goals; writes results/bench
	@rm -f results/bench/*_figures.json results/bench/*/*_figures.json
	@status=0; $(BENCH) || status=1; \
		for servers in 3 5; do \
			$(BENCH) --servers $$servers --apart 0.5 --only ares-abd,redis-wait --workloads '10 B' --out results/bench/apart$$servers || status=1; \
		done; \
		$(EXPERIMENTS).logs --only speed,peers,size --results results/bench/logs || status=1; \
		$(BENCH).moving --no-durations --rounds 3 || status=1; \
		$(BENCH).scale --only keys,objects --full || status=1; \
		$(BENCH).performance_page || status=1; exit $$status

bench-quick: $(BENCH_STAMP) ## measure ares beside few stores, under two minutes; shows the goals of these ratios
	@$(BENCH) --quick

bench-scale: $(BENCH_STAMP) ## measure how ares grows with clients, keys, servers, values and domains; writes results/bench
	@$(BENCH).scale

bench-moving: $(BENCH_STAMP) ## measure the costs for users and the time of moving a domain of 10,000 objects; writes results/bench
	@$(BENCH).moving

experiments-quick: $(BENCH_STAMP) ## run every scenario of the papers in small, as root, under half an hour; writes results/experiments-quick
	@status=0; $(EXPERIMENTS) run --testbed local --scale quick --results results/experiments-quick --resume || status=1; \
		$(EXPERIMENTS).logs --only figures --results results/experiments-quick || status=1; exit $$status

experiments-points: $(BENCH_STAMP) ## measure the points that the claims of the papers name, as root, at most a night; continues an interrupted run; writes results/experiments-points and docs/reproduction.md
	@status=0; $(EXPERIMENTS) run --testbed local --scale points --clients-per-host 25 --results results/experiments-points --resume || status=1; \
		$(EXPERIMENTS).logs --only faults,figures --scale points --results results/experiments-points || status=1; \
		$(EXPERIMENTS).sites --points --results results/experiments-points || status=1; \
		$(EXPERIMENTS) verdicts --results results/experiments-points --add || status=1; exit $$status

experiments: $(BENCH_STAMP) ## run every scenario in the papers' size, as root, for days; continues an interrupted run; writes results/experiments
	@$(EXPERIMENTS) run --testbed local --scale paper --results results/experiments --resume

clean: ## remove .venv, caches and the results of builds
	rm -rf $(VENV) build dist packaging/grafana/*.json *.egg-info core/target core/fuzz/target ares/_core*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is missing or older than 3.11. On Debian or Ubuntu: sudo apt-get install python3 python3-venv"; \
		echo "      Another interpreter is used with: make PYTHON=python3.12"; exit 1; } >&2
	@test -x $(VENV)/bin/pip || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: this Python cannot make virtual environments: a package is missing. On Debian or Ubuntu:"; \
		echo "      sudo apt-get install python3-venv"; exit 1; } >&2
	@test -x $(VENV)/bin/pip || { echo "making $(VENV)"; rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@echo "installing into $(VENV), which takes a minute the first time"
	@ARES_PURE=1 $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' || { \
		echo "make: the installation failed, see above. It needs the Python package index (pip's settings for proxies and mirrors apply)"; exit 1; } >&2
	@touch $@

# The script makes the stamp when it has built the core. Otherwise each `make` tries again.
$(CORE): $(STAMP) $(wildcard core/src/*.rs) core/Cargo.toml core/Cargo.lock core/build
	@core/build $(VENV) $(CORE_SECONDS)

$(BENCH_STAMP): $(STAMP) | $(CORE)
	@ARES_PURE=1 $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]' || { \
		echo "make: the clients of other stores could not be installed, see above; those stores are left out"; } >&2
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@ARES_PURE=1 $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@
