# Tidemark: `make help` lists every command.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Modules stay compiled, whatever the environment says: every command and every Spark worker begins with thousands of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run ui test soak rounds kills bounded check format bench-catalog bench-memory bench-connectors bench-models lock clean

help:  ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# The environment is rebuilt when the locked dependencies change. pip installs uv, whose hash is locked too; uv the rest.
.venv/.ready: requirements.lock requirements-uv.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidemark needs Python 3.11 or later (PYTHON=…)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the locked dependencies …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m spark_code.session
	@touch $@

setup: .venv/.ready  ## Environment .venv with the command .venv/bin/tidemark, Java and Spark's jars

run: setup  ## The demo: a shop in PostgreSQL, its catalogue, a migration, two days of trade, three models
	@$(BIN)/python -m demo

ui: setup  ## Dagster's web UI with all runs
	@$(BIN)/python -m demo --ui

test: setup check  ## Everything: checks, unit tests, Spark, servers, faults, browser
	@$(BIN)/python -m tests.services.fetch
	@$(BIN)/pytest -m "not fast" -q -n 2 --dist loadfile --no-loadscope-reorder
	@$(BIN)/python -m tests.soak --minutes 3 --seed $(or $(SEED),7)

soak: setup  ## 20 minutes of kills, pauses and outages, then everything must be current (SEED=…, MINUTES=…)
	@$(BIN)/python -m tests.soak $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

rounds: setup  ## 100 rounds of random changes, faults and kills for each kind of stream (SEED=… for the same again)
	@TIDEMARK_ROUNDS=100 $(if $(SEED),TIDEMARK_SEED=$(SEED)) $(BIN)/pytest -q -s tests/connectors/test_stream_rounds.py

kills: setup  ## kill -9 at every point of every scenario of every system, on S3 and PostgreSQL too: more than an hour
	@$(BIN)/python -m tests.services.fetch
	@TIDEMARK_KILLS=all $(BIN)/pytest -q -s -o timeout=7200 -o faulthandler_timeout=7300 -k "whatever_is_killed" \
	  tests/tidemark/runs tests/runs tests/catalog/test_catalog_faults.py tests/connectors/test_stream_faults.py \
	  tests/models/test_model_faults.py

bounded: setup  ## 300 runs of every system: what they leave behind does not grow (half an hour)
	@TIDEMARK_BOUNDED=300 $(BIN)/pytest -q -o timeout=3600 -o faulthandler_timeout=3700 tests/runs/test_bounded.py

check: setup  ## Format, lint, types, import direction, fast tests: under two minutes
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache | tail -n 3
	@$(BIN)/pytest -m fast -q -n 2 --dist loadfile --no-loadscope-reorder

format: setup  ## Format the code and fix what can be fixed
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench-catalog: setup  ## The catalogue's performance figures, as a table
	@$(BIN)/python -m benchmarks.catalog

bench-memory: setup  ## What the driver holds: a listing of 1 M tables, a renamed schema of 1 M columns
	@$(BIN)/python -m benchmarks.catalog_memory

bench-connectors: setup  ## The connectors' performance figures next to dlt's, as a table
	@$(BIN)/python -m benchmarks.connectors && $(BIN)/python -m benchmarks.odata

bench-models: setup  ## The models' performance figures next to dbt's, as a table
	@$(BIN)/python -m benchmarks.models

lock: setup  ## Lock the dependencies of pyproject.toml again
	@$(BIN)/uv pip compile --quiet --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-header \
	  --extra java --extra demo --extra postgres --extra dev -o requirements.lock pyproject.toml
	@grep -A 100 '^uv==' requirements.lock | awk 'NR > 1 && /^[a-z]/ {exit} /^ +#/ {next} {print}' > requirements-uv.lock

clean:  ## Remove the environment and the demo's state
	@rm -rf .venv .tidemark
