# Two commands do everything on a fresh machine: `make demo` and `make test`.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TESTS ?= tests
# Else every program that a test starts would be compiled anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo pool test unit worker39 check bench docs wheel clean

help: ## this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## make .venv with packtrain and all that its tests need

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install ## CIFAR-10 from a server that demands a token, two short epochs, with live bars
	$(BIN)/python -m testbed.demo

pool: install ## a real HTCondor pool of three sites, until Ctrl-C
	@$(BIN)/python -m testbed.condor_pool

test: check ## everything that CI runs
	$(BIN)/python -m testbed.components
	$(BIN)/python -m testbed.rerun_failed $(BIN)/pytest -- -n 4 --dist loadgroup $(TESTS)
	$(MAKE) --no-print-directory worker39

unit: install ## the fast tests, under a minute
	$(BIN)/pytest -n 3 -m 'not slow' tests/unit tests/architecture

worker39: install ## the tests of what rides to the worker, on a real Python 3.9
	$(BIN)/python -m testbed.rerun_failed $(BIN)/python -m testbed.python39 -m pytest -c testbed/python39.ini --rootdir . -- -n 3 tests/unit/plan tests/unit/events tests/unit/transfer tests/unit/agent tests/unit/torch tests/unit/plugin tests/unit/stream

check: install ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install ## side-by-side measurements (see bench/README.md)
	@ls bench/*.py >/dev/null 2>&1 || { echo "no benches yet: they come with the fetch engine"; exit 0; }; \
	for bench in bench/*.py; do $(BIN)/python $$bench --json || exit 1; done

docs: install ## make the reference pages anew from the code
	$(BIN)/python docs/make.py

wheel: install ## a wheel in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove what was made, except downloads in .cache
	rm -rf .venv dist build demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
