# An index of the words that this repository understands; `make` alone prints them. Each calls one script or tool.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Without bytecode every process of a stack compiles the source again: a third of the time that it takes to start.
unexport PYTHONDONTWRITEBYTECODE
PYTEST_ARGS ?=
TEST_PROCESSES ?= 4
PROCESSES = -n $(TEST_PROCESSES) --no-loadscope-reorder
# The last three: the attacks that need no stack of their own. pytest drops a path that another one contains, so that `tests` would leave them out.
TESTS = apps libs services $(addprefix tests/,kit architecture e2e integration $(addprefix attack/test_,method_matrix.py forged_certificates.py hostile_input.py))

.PHONY: help bootstrap up down status certs test test-budget long-test timing-test quick gate chart-test alerts-test operations-test fault-test attack-test fuzz outage-long starved-long compose-test lint format types contracts deps
.PHONY: proto proto-check size docs docs-check docs-site dist version release sbom image-sizes bench bench-failover bench-peers bench-compare screenshots lock check all

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

bootstrap: ## make .venv and install what is missing (every other word does it first)
	@scripts/bootstrap

up: bootstrap ## start the whole stack here and run the examples (COORDINATORS=2 EXECUTORS=2 LOG_ARCHIVERS=1 ADMIN_WEBS=1 EXECUTOR_GROUPS=)
	@python -m toban_stack up

down: bootstrap ## stop the stack; its data stays in .toban
	@python -m toban_stack down

status: bootstrap ## each process with its address, role, restarts and health
	@python -m toban_stack status

certs: bootstrap ## new certificates for the running stack, without a restart
	@python -m toban_stack certs renew

test: bootstrap ## the tests of the gate, on real servers (PYTEST_ARGS='-k name' for some, TEST_PROCESSES=0 for one process)
	@python -m pytest $(PROCESSES) -m 'not long and not timing' --junitxml=build/test.xml $(TESTS) $(PYTEST_ARGS)

test-budget: bootstrap ## the time of the last `make test` by folder, against tests/budget.txt (scripts/test-budget --write makes it)
	@scripts/test-budget

long-test: bootstrap ## the tests of apps, libs, services and the whole that cost more than the gate can pay for, and newly drawn cases of all properties
	@python -m pytest $(PROCESSES) -m '(long or hypothesis) and not timing' --hypothesis-profile=long $(PYTEST_ARGS)

timing-test: bootstrap ## the tests that bound real time, one after another on a machine that does nothing else
	@python -m pytest -m 'timing' $(PYTEST_ARGS)

gate: bootstrap ## what must pass before a change lands: check, test, the chart, a short fuzz; the seconds of each
	@scripts/gate gate

all: bootstrap ## everything: the gate and all that takes longer or bounds real time; once a day, and before a release
	@scripts/gate all

quick: bootstrap ## only the tests that a change can touch, by the import graph (BASE=main; without stacks)
	@tests=$$(scripts/changed-tests $(BASE)) && if [ -z "$$tests" ]; then echo "quick: the change touches no test"; \
	else python -m pytest $(PROCESSES) -m 'not long and not timing' $$tests $(PYTEST_ARGS) || [ $$? = 5 ]; fi

chart-test: bootstrap ## the Helm chart without a cluster: schema, rendered objects, network policies
	@scripts/chart-test $(PYTEST_ARGS)

alerts-test: bootstrap ## alerts, routes and the dashboard in Prometheus' own tools; without them it is skipped
	@python -m pytest -p no:cacheprovider -rs tests/deploy/test_alerts.py tests/deploy/test_alerts_end_to_end.py $(PYTEST_ARGS)

operations-test: bootstrap ## backup and restore, traces, upgrades; not part of `make test`
	@python -m pytest tests/operations $(PYTEST_ARGS)

fault-test: bootstrap ## kills, restarts and stops under load; not part of `make test`
	@python -m pytest tests/faults $(PYTEST_ARGS)

attack-test: bootstrap ## attacks on a running stack, each of which must be refused; not part of `make test`
	@python -m pytest tests/attack $(PYTEST_ARGS)

fuzz: bootstrap ## nearly right input for all that reads input of others: files, jobs, guards, every gRPC method (CASES=2000, SEED=toban, TARGETS='cron calls')
	@python tests/fuzz/fuzz.py --cases $(or $(CASES),2000) --seed $(or $(SEED),toban) $(TARGETS)

starved-long: bootstrap ## a leader with a third of a core under load: no change of term, nothing set aside (SECONDS=600)
	@TOBAN_STARVED_SECONDS=$(or $(SECONDS),600) python -m pytest -o log_cli=true -o log_cli_level=INFO tests/faults/test_starved_leader.py $(PYTEST_ARGS)

outage-long: bootstrap ## outages, cut-off executors, and every order of stops and kills around the end of a lease: half an hour
	@TOBAN_LONG=1 python -m pytest tests/faults/test_outage.py tests/faults/test_cut_off.py tests/faults/test_lease_end.py $(PYTEST_ARGS)

compose-test: bootstrap ## docker-compose.yml and container steps with a real Docker engine; without one it is skipped
	@timeout -s INT -k 180 1500 python -m pytest -p no:cacheprovider -rs tests/deploy/test_compose.py services/executor/tests/adapters/test_container_steps.py $(PYTEST_ARGS)

lint: bootstrap ## ruff, shellcheck, yamllint, hadolint
	@scripts/lint

format: bootstrap ## let ruff format the code and sort its imports
	@ruff check --select I --fix --quiet . && ruff format .

types: bootstrap ## mypy --strict over every package
	@scripts/types

contracts: bootstrap ## who may import what
	@lint-imports --no-logo

deps: bootstrap ## each package declares what it imports
	@scripts/deps

proto: bootstrap ## generate libs/proto from proto/
	@scripts/proto-gen

proto-check: bootstrap ## generated code is current, proto lint, nothing broke
	@scripts/proto-check

size: bootstrap ## no module over 500 lines, no function over 60; figures of the source (scripts/check-size --list: small modules)
	@scripts/check-size

docs: bootstrap ## generate docs/cli.md, architecture.md (tables), metrics.md, rest-reference.md, sdk-reference.md, run-states.md, settings.md, tables of manifests.md and seeds.md, the dashboard, the SDK's plain client and its types of manifests
	@scripts/gen-docs && scripts/gen-rest-reference && scripts/gen-architecture && scripts/gen-run-states && scripts/gen-seeds && scripts/gen-settings && scripts/gen-sync-client && scripts/gen-manifest-types && scripts/gen-sdk-reference && scripts/gen-metrics && scripts/gen-dashboard

docs-check: bootstrap ## documents name only files that exist; generated ones are current
	@python -m pytest -q -m 'not long' tests/architecture

docs-site: bootstrap ## build/docs-site: the documents as a site with search, each link and anchor checked; the first time it installs what builds it
	@scripts/docs-site && python -m pytest -q tests/deploy/test_docs_site.py $(PYTEST_ARGS)

dist: bootstrap ## wheels and source distributions of all packages in dist/ (ARGS=--dependencies: and of what they need from others)
	@python scripts/dist $(ARGS)

version: bootstrap ## write VERSION (or VALUE=1.2.3) to the places that need it
	@python scripts/set-version $(VALUE)

release: bootstrap ## a release: version, notes, tag, packages, chart, images, SBOM, checksums, signature (VALUE=1.2.3 KEY=FILE ARGS=--without-images)
	@scripts/release '$(VALUE)' --key '$(KEY)' $(ARGS)

sbom: bootstrap ## build/sbom: a CycloneDX list of what each image holds, its licences checked
	@scripts/sbom

image-sizes: ## how large each image is, and how much of it is not the base
	@scripts/image-sizes

bench: bootstrap ## measure, a line of JSON a figure
	@scripts/bench

bench-failover: bootstrap ## fail-over of leader, executors and PostgreSQL beside the goals (ARGS='--samples 300 --check crash')
	@python tests/bench/failover.py $(ARGS)

bench-peers: bootstrap ## Toban beside Huey, Celery, Procrastinate, RQ, Dramatiq and APScheduler, in the same rounds (PEERS='celery huey' ROUNDS=5 RUNS=2000 DUE=10000)
	@python tests/bench/bench_peers.py

bench-compare: bootstrap ## throughput, latency and CPU of HEAD against BASE=<commit>; fails when HEAD is slower (PAIRS=7)
	@scripts/bench-compare '$(BASE)'

screenshots: bootstrap ## the pictures of the site in docs/images, of a stack of their own; needs Chromium (ARGS='runs load' for some)
	@python -m toban_testing.screenshots $(ARGS)

lock: bootstrap ## compile requirements/*.txt from *.in
	@scripts/lock

check: lint types contracts deps proto-check size ## everything but the tests
