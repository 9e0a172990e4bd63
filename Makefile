# make bench: measure this machine's CPU (quick profile). make test: the project's tests. make lint: style, types, layers.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
TORCH :=
# without an NVIDIA driver torch needs no gigabytes of CUDA; where PyTorch's index does not answer, pip's own one serves
ifeq ($(wildcard /proc/driver/nvidia/version),)
PIP += --constraint constraints-cpu.txt
TORCH := $(PIP) --retries 0 --timeout 10 --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null || true
endif
REPORT ?= .npubench/report.html

.PHONY: bench test lint clean

bench: $(VENV)/.bench
	$(BIN)/python -m pytest -m cpu suites/ --npubench-report $(REPORT) --benchmark-disable

test: $(VENV)/.test
	$(BIN)/python -m pytest tests/

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.bench: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(TORCH)
	$(PIP) --editable '.[cpu]'
	touch $@

$(VENV)/.test: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(TORCH)
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(TORCH)
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .npubench
