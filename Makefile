# Set-up happens by itself: every target makes .venv when it is not there or when pyproject.toml changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Real models want every core for themselves; everything else shares them.
WORKERS := $(if $(LOCALSPEC_TEST_TARGET),,-n logical --maxprocesses 4 --dist worksteal)
STAMP := $(VENV)/.installed

.PHONY: coverage demo test test-long check lint types help package

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: $(STAMP) ## the main job on a small model
	$(BIN)/localspec demo

test: $(STAMP) ## everything that needs no big model
	$(BIN)/python -m pytest $(WORKERS)

test-long: $(STAMP) ## full sizes, soaks and fuzzers
	$(BIN)/python -m pytest -m long -o timeout=7200

coverage: $(STAMP) ## how much of the code the tests run
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

check: lint types test ## what CI asks

lint: $(STAMP) ## ruff
	$(BIN)/ruff check localspec tests packaging benchmarks docs

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

package: $(STAMP) ## wheel, sdist, app folder and Debian package, into dist/ (compiles llama.cpp once)
	$(BIN)/python packaging/build.py all

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[demo,server,test]'
	touch $@
