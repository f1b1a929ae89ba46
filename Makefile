# Everything a fresh machine with only Python needs:
#   make demo    the main job on bundled real data, in a new .venv
#   make test    the whole test run: style, types, walls, tests
#   make docs    the documentation as a site that can be read from its files: build/site/index.html
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AREA ?=

.PHONY: demo test check fast claims docs clean

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "discretion needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[geo]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python -m examples.london

# Two workers, one BLAS thread each.
test: check
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --slow -n 2 --dist worksteal

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

fast: $(VENV)/.installed-test
	$(BIN)/python -m pytest -x

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

# Strict: a warning is an error. The variable silences an advertisement.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

claims: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.claims $(AREA)

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .ruff_cache .hypothesis
