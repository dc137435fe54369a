# Every target sets up its own .venv when it is missing or older than what it is made from.
#   make test                                        everything needed, then the tests
#   make test TORCH_INDEX=https://download.pytorch.org/whl/cpu    another index for torch: its CPU build, …/cu128 for CUDA
PYTHON      ?= python3
TORCH_INDEX ?=
VENV        := .venv
BIN         := $(VENV)/bin
STAMP       := $(VENV)/.stamp
TORCH_ARGS  := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
PIP         := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help setup demo test test-slow reliability audit lint format bench reproduce docs clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt src/rectangular_flows/_version.py
	@echo "setting up $(VENV) (a few minutes the first time) ..."
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --constraint constraints.txt $(TORCH_ARGS) torch
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(STAMP)  ## make the virtual environment

demo: $(STAMP)  ## the von Mises circle: train both methods, draw the figure, write the report
	$(BIN)/rnf demo

test: $(STAMP)  ## the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(STAMP)  ## the tests marked slow
	$(BIN)/python -m pytest -m slow

reliability: $(STAMP)  ## the long campaign of faults; writes docs/reliability.md
	$(BIN)/python -m pytest -m reliability --reliability-page docs/reliability.md

audit: $(STAMP)  ## known weaknesses of the packages that are installed, by pip-audit (needs pypi.org)
	$(PIP) install --quiet pip-audit
	$(BIN)/python tools/audit.py

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## speed, memory and quality against the algorithm as published; an hour
	$(BIN)/rnf bench all --out runs/bench

reproduce: $(STAMP)  ## every experiment of the paper whose data are at hand; hours, and goes on where it was stopped
	$(BIN)/rnf reproduce all

docs: $(STAMP)  ## make the figures of the documentation again
	$(BIN)/rnf demo --out runs/demo
	mkdir -p docs/images && cp runs/demo/circle.png docs/images/circle.png

clean:  ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
