# `make` lists the targets. Each one works on a fresh clone: it sets up .venv first.
# Needed beforehand: Python 3.11 or newer, pip, make.

PYTHON ?= python3
PY := .venv/bin/python
UV := .venv/bin/uv
INSTALL := $(PY) tools/install.py

RUN := .venv/.run
READY := .venv/.ready
DOCS := .venv/.docs
PEERS := .venv/.peers
JAVA := .venv/.java

# Silences a notice about other projects that the theme prints with every build.
export NO_MKDOCS_2_WARNING := 1

.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup services run test bench soak mutate docs lint fmt lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create or refresh .venv (nothing to do when it is up to date)

run: $(JAVA) ## Run the demo (ONCE=1: one round, then stop)
	@$(PY) -m examples.demo

test: lint services $(DOCS) ## Lint, type-check, run the tests with coverage, build the docs
	rm -f .coverage*
	$(PY) tools/run_tests.py
	$(PY) -m coverage report --data-file=.coverage-core --show-missing --fail-under=100
	$(PY) -m coverage report
	$(PY) -m mkdocs build --strict --quiet

services: $(READY) $(JAVA) ## Install what the tests need beside Python: Redis, PostgreSQL, Chromium (apt, as root)
	@missing=; for program in redis-server chromium; do \
		command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
		missing="$$missing postgresql"; }; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "The tests need$$missing: please install that first"; exit 1; fi; \
	echo "Installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	if [ ! -e /etc/postgresql-common/createcluster.conf ]; then \
		mkdir -p /etc/postgresql-common; \
		echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf; fi; \
	apt-get -qq update && apt-get -qq install --yes $$missing >/dev/null

bench: $(PEERS) ## Run the benchmarks (ARGS=--quick: a smoke test)
	$(PY) -m bench $(ARGS)

soak: services ## Run the long tests
	$(PY) -m pytest -m soak --timeout=0

mutate: $(READY) ## Mutation-test core
	$(PY) -m mutmut run
	$(PY) -m mutmut results

docs: $(DOCS) ## Build the documentation into site/
	$(PY) -m mkdocs build --strict

lint: $(READY) ## Check style, types and the direction of imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict src tests/typing
	.venv/bin/lint-imports

fmt: $(READY) ## Format the code and fix what can be fixed
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

lock: $(UV) ## Pin the requirements again (UPGRADE=1: to the newest versions)
	$(COMPILE) pyproject.toml --all-extras --group dev --output-file requirements/dev.lock
	$(COMPILE) pyproject.toml --extra broker --extra cli --constraint requirements/dev.lock --output-file requirements/broker.lock
	$(COMPILE) pyproject.toml --extra broker --extra cli --extra spark --group build --constraint requirements/dev.lock \
		--output-file requirements/run.lock
	$(COMPILE) --group docs --constraint requirements/dev.lock --output-file requirements/docs.lock
	$(COMPILE) --group bench --constraint requirements/dev.lock --output-file requirements/bench.lock
	$(COMPILE) requirements/interop.in --output-file requirements/interop.lock
	$(COMPILE) requirements/dramatiq-pg.in --output-file requirements/dramatiq-pg.lock
	$(COMPILE) requirements/connect.in --constraint requirements/dev.lock --no-emit-package pyspark \
		--no-emit-package py4j --no-emit-package pyarrow --output-file requirements/connect.lock
	$(COMPILE) --group java --output-file requirements/java.lock
	$(COMPILE) --group lock --output-file requirements/lock.lock

clean: ## Remove .venv and everything generated
	rm -rf .venv .venv-interop .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache build dist mutants site
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Pillarbox needs Python 3.11 or newer; try: make setup PYTHON=python3.11")'
	@echo "Creating .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear .venv

$(UV): requirements/lock.lock | $(PY)
	@$(PY) -m pip --disable-pip-version-check install --quiet --require-hashes --requirement requirements/lock.lock
	@touch $@

$(RUN): requirements/run.lock pyproject.toml | $(UV)
	@echo "Installing what running needs into .venv"
	@$(INSTALL) --requirement requirements/run.lock
	@$(INSTALL) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(RUN) requirements/dev.lock
	@echo "Installing what developing needs into .venv"
	@$(INSTALL) --requirement requirements/dev.lock
	@touch $@

$(JAVA): $(RUN) requirements/java.lock
	@$(PY) -c 'from pillarbox.spark.java import find_java; find_java()' 2>/dev/null || { \
		echo "Installing a Java for Spark from PyPI"; \
		$(INSTALL) --requirement requirements/java.lock; }
	@touch $@

$(DOCS): $(READY) requirements/docs.lock
	@echo "Installing the documentation tools"
	@$(INSTALL) --requirement requirements/docs.lock
	@touch $@

$(PEERS): $(READY) requirements/bench.lock requirements/dramatiq-pg.lock
	@echo "Installing the peers of the benchmarks"
	@$(INSTALL) --requirement requirements/bench.lock
	@$(INSTALL) --quiet --target .venv/dramatiq-pg --requirement requirements/dramatiq-pg.lock
	@touch $@
