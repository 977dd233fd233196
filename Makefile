# All it takes: Python 3.11 or newer, make, and for the services Java 17 and Maven (or Docker, or addresses of your own).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PORTIONS := schemas tables models streams agents deploy
ARGS ?=
PROCESSES ?= 3
KILLS ?= 100
SEEDS ?= 1000
FROM ?= 0
# pip's progress is for somebody who watches; a log needs none of it.
PIP := $(BIN)/python -m pip install --disable-pip-version-check $(shell [ -t 2 ] || echo --quiet)

.DEFAULT_GOAL := help
.PHONY: help setup test lint lock docs demo bench bench-entities bench-flood bench-models bench-recovery reasons handbook chaos compat sim security wheel clean

help: ## show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the locked dependencies and this checkout

# Anew when what it was made from changes, else nothing.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: $(PYTHON) is older than 3.11. Mend: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "setting up $(VENV): about 250 MB of packages are downloaded, once" >&2
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

test: setup ## run all tests, on a real Kafka and Redis (ARGS: for pytest)
	@$(BIN)/assay services fetch
	@# A file's tests in one process, since they share what it has started; the longest files come first.
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: setup ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy does not know setuptools' package-dir: it is shown the packages where they will be installed.
	@mkdir -p build/types/assay
	@for portion in $(PORTIONS); do ln -sfn ../../../$$portion build/types/assay/$$portion; done
	cd build/types && MYPYPATH=. ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p assay
	$(BIN)/lint-imports

lock: ## lock the dependencies anew (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --output-file requirements.lock

demo: setup ## everything at once: services, training, two workers, live payments, a summary
	@$(BIN)/assay demo $(ARGS)

bench: setup ## measure: drain, latency, CPU per stage
	@$(BIN)/assay services fetch
	@$(BIN)/python perf/bench.py $(ARGS)

bench-entities: setup ## measure: entity windows on one Redis and on a cluster of three
	@$(BIN)/python perf/entities.py $(ARGS)

bench-flood: setup ## measure: what a flood of one user costs the others, with a limit and without
	@$(BIN)/assay services fetch
	@$(BIN)/python perf/flood.py $(ARGS)

bench-models: setup ## measure: forms of the ensemble side by side, by the size of the micro-batch
	@$(BIN)/python perf/models.py $(ARGS)

reasons: setup ## compare reasons with exact TreeSHAP: overlap of the top four, and what they cost
	@$(BIN)/python perf/reasons.py $(ARGS)

bench-ask: setup ## measure: how long our client waits, beside bare producing and consuming
	@$(BIN)/assay services fetch
	@$(BIN)/python perf/ask.py $(ARGS)

bench-recovery: setup ## measure: profiles read back from the changelog, and the take-over after a kill
	@$(BIN)/assay services fetch
	@$(BIN)/python perf/recovery.py $(ARGS)

handbook: setup ## score the Handbook's transactions by its own protocol (HANDBOOK=file; ARGS=--choosing)
	@HANDBOOK="$(HANDBOOK)" $(BIN)/python perf/handbook.py $(ARGS)

chaos: setup ## kill, stop and cut off real workers under traffic, and check every verdict (KILLS=100)
	@$(BIN)/assay services fetch
	@$(BIN)/python -m tests.chaos --kills $(KILLS) $(ARGS)

security: setup ## log in by each way, as each role, and try what is allowed and what is not
	@$(BIN)/assay services fetch
	@$(BIN)/python -m tests.integration.security_matrix

compat: setup ## let clients of Java, Node and Python ask a real worker, and check every answer
	@$(BIN)/assay services fetch
	@$(BIN)/python -m tests.compat $(ARGS)

docs: setup ## make the generated pages anew
	$(BIN)/python -m assay.deploy.settings_page > docs/settings.md
	$(BIN)/python -m assay.deploy.features_page > docs/features.md
	$(BIN)/python -m assay.deploy.schemas_files docs/schemas

sim: setup ## simulate workers and all that goes wrong, from seeds (SEEDS=1000 FROM=0, or SEED=17 with its trace)
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --from $(FROM)) $(ARGS)

wheel: setup ## build the wheel into dist/
	rm -rf build/lib  # what was deleted from the source must not live on in a wheel
	$(BIN)/python -m build --wheel --outdir dist .

clean: ## remove what was built, but not .venv
	rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
