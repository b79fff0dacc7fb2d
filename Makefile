# Everything runs in .venv, which the targets make and fill themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

# Options of `python -m profiler.calibrate` and of the benchmarks, of pytest, and of pip for PyTorch alone
# (such as the index of its CPU builds, which on Linux are much smaller than the default).
ARGS ?=
PYTEST_FLAGS ?= -n auto --maxprocesses=4 --dist loadfile
TORCH_FLAGS ?=

# The report of the run that was just recorded, wherever ARGS put it.
REPORT = out=$$(printf '%s\n' $(ARGS) | sed -n 's/^--out=//p; /^--out$$/{n;p;}') && \
	$(BIN)/python -m figures.report --results "$${out:-results}"

.DEFAULT_GOAL := help
.PHONY: help calibrate test lint mutation notebooks bench accuracy embedded-pair smollm2-drafters install clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

calibrate: $(VENV)/.runtime ## record a pair, predict its frontier, write a report (ARGS="--prompts 20")
	$(BIN)/python -m profiler.calibrate $(ARGS)
	$(if $(findstring --list-pairs,$(ARGS)),,$(REPORT))

# One thread a process: the tests run side by side, and their networks are small.
test: $(VENV)/.installed ## run the tests (PYTEST_FLAGS="-k acceptance")
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(VENV)/.installed ## check style, format, types and the arrows between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

mutation: $(VENV)/.installed ## put faults into the theory, one at a time, and count those that the tests notice
	rm -rf mutants
	OMP_NUM_THREADS=1 $(BIN)/mutmut run
	$(BIN)/python -m tests.mutation_score

notebooks: $(VENV)/.installed ## execute every notebook
	$(BIN)/python -m pytest -n 2 --dist loadfile --nbmake notebooks/ --nbmake-timeout=600

bench: $(VENV)/.installed ## measure speed, side by side with peers (ARGS="--only assisted")
	$(BIN)/python -m benchmarks $(ARGS)

accuracy: $(VENV)/.installed ## record, sweep other prompts, and see how far each prediction is from measurement
	$(BIN)/python -m benchmarks.accuracy

embedded-pair: $(VENV)/.runtime ## train the embedded pair from nothing and replace its weights
	$(BIN)/python -m profiler.training --out profiler/pairs/embedded

smollm2-drafters: $(VENV)/.installed ## train the drafters of the SmolLM2 pair on its verifier's answers
	$(BIN)/python -m profiler.distillation --out profiler/pairs/smollm2

install: $(VENV)/.installed ## make .venv for development

clean: ## remove caches and build outputs; keep .venv and results
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist mutants *.egg-info
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# PyTorch comes first and pinned, so that no later step can replace its build by another.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) $(TORCH_FLAGS) torch
	$(PIP) -e .
	@touch $@

$(VENV)/.installed: $(VENV)/.runtime
	$(PIP) -e '.[dev]'
	@touch $@
