PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
STAMP := $(VENV)/.installed
KVPRESS_VENV ?= .venv-kvpress
KVPRESS_STAMP := $(KVPRESS_VENV)/.installed
# One thread a process: the suite runs in several processes, and small models are slower with more.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup probe test test-kvpress check gpu bench

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## make .venv and install headscope with all extras

$(STAMP): pyproject.toml
	@echo "headscope: making $(VENV) with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "headscope: $(PYTHON) cannot make virtual environments (Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "headscope: installing into $(VENV) (PyTorch is large: the first time takes some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[offline,rapidocr,slurm,test]'
	@touch $(STAMP)

probe: $(STAMP)  ## probe the bundled model on the bundled pages: scores/reader-22m.json and its head map
	@echo "headscope: probing the bundled model on the bundled pages with EasyOCR"
	@$(BIN)/headscope probe model=reader pages=bundled ocr=easyocr out=scores/reader-22m.json

test: $(STAMP)  ## run the test suite
	@echo "headscope: running the tests in $(WORKERS) processes"
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m "not gpu"

test-kvpress: $(KVPRESS_STAMP)  ## run the tests of the kvpress press, in an environment with the transformers that it pins
	@echo "headscope: running the kvpress tests in $(KVPRESS_VENV)"
	@$(KVPRESS_VENV)/bin/python -m pytest -q tests/integrations/test_kvpress.py

$(KVPRESS_STAMP): pyproject.toml
	@echo "headscope: making $(KVPRESS_VENV) with $$($(PYTHON) --version)"
	@test -x $(KVPRESS_VENV)/bin/python || $(PYTHON) -m venv $(KVPRESS_VENV)
	@$(KVPRESS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'kvpress>=0.5.5,<0.6' 'pytest>=8.3'
	@$(KVPRESS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(KVPRESS_STAMP)

check: $(STAMP)  ## check format, lint and types
	@echo "headscope: checking format, lint and types"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

gpu: $(STAMP)  ## run the tests that need a GPU
	@echo "headscope: running the GPU tests"
	@$(BIN)/python -m pytest -q -m gpu

bench: $(STAMP)  ## measure what probing costs on this machine, into scores/bench/
	@echo "headscope: measuring what probing costs"
	@$(BIN)/headscope bench probe
