# Every target makes its own environment in .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint docs bench

demo: .venv/.base
	$(BIN)/python -m skjaxwin

test: .venv/.test
	$(BIN)/python -m pytest

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.test
	$(BIN)/python -m pytest skjaxwin docs README.md
	$(BIN)/python examples/run_all.py

bench: .venv/.bench
	$(BIN)/python -m benchmarks

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.base: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e . && touch $@

.venv/.test: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e ".[test,plot]" && touch $@

.venv/.bench: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e ".[bench]" && touch $@
