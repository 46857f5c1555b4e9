# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: demo test check lint golden wheel clean

demo: $(STAMP)
	$(BIN)/nautile optimize src/nautile/examples/attention.nau -o out/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS)

check: lint test

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

golden: $(STAMP)
	$(BIN)/python -m pytest tests/codegen --update-golden

wheel: $(STAMP)
	$(BIN)/python -m build --wheel

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache
