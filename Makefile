# On a fresh machine, `make demo` and `make test` install everything they need.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TESTS ?= tests
# Otherwise every program that a test starts would be compiled again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo pool cluster test unit worker39 check bench docs wheel clean

help: ## show this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## create .venv with packtrain and its development dependencies

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install ## train on CIFAR-10 from a local server with a token, two short epochs
	$(BIN)/python -m testbed.demo

pool: install ## run a real HTCondor pool of three sites until Ctrl-C
	@$(BIN)/python -m testbed.condor_pool

cluster: install ## run a real Slurm cluster of three nodes until Ctrl-C
	@$(BIN)/python -m testbed.slurm

test: check ## run everything that CI runs
	$(BIN)/python -m testbed.components
	$(BIN)/pytest -n 4 --dist loadgroup $(TESTS)
	$(MAKE) --no-print-directory worker39

unit: install ## run the fast tests, under a minute
	$(BIN)/pytest -n 4 -m 'not slow' tests/unit tests/architecture

worker39: install ## run the tests of the worker code on a real Python 3.9
	$(BIN)/python -m testbed.python39 -m pytest -c testbed/python39.ini --rootdir . -n 3 tests/unit/plan tests/unit/events tests/unit/transfer tests/unit/pixi tests/unit/agent tests/unit/torch tests/unit/plugin tests/unit/stream

check: install ## run ruff, mypy --strict and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install ## run the benchmarks (see bench/README.md)
	for bench in bench/*.py; do $(BIN)/python $$bench --json || exit 1; done

docs: install ## generate the reference pages from the code
	$(BIN)/python docs/make.py

wheel: install ## build a wheel in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove build products, but keep downloads in .cache
	rm -rf .venv dist build demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
