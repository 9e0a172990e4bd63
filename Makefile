# make bench: measure this machine's CPU (quick profile). make test: the project's tests without the
# soaks, in minutes; make test TESTS=tests/cli: those of a folder; EXCEPT=tests/crash: all others. make test-all: soaks too.
# make test-again: what failed in the last run, one test at a time, until the first that fails again.
# make lint: style, types, layers, workflows.
# make docs: the site of docs/ into build/site; a link that leads nowhere ends it.
# make pictures: those of README and docs anew, from real runs here.
# make audit: known advisories of what the lock files pin.
# make preflight: the suite `compiled` for a TPU that is not here, held against baselines/, and
# what is planted in it; make preflight PREFLIGHT="tpu-v6e": for others. libtpu is Google's, 250 MB.
# make preflight-qualcomm: the same for a Snapdragon's NPU, three minutes. onnxruntime-qnn is Qualcomm's, 100 MB.
# make test-vllm: the tests that need vLLM, whose CPU build gets an environment of its own (3.5 GB).
PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
BIN := $(VENV)/bin
# half of an installation's time is byte code of modules that nothing imports: what is imported is compiled then, and kept
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile
PIP := $(BIN)/python $(INSTALL)
# an editable install holds a copy of the suites, made when it is installed
SUITES := $(wildcard suites/*.py suites/*/*.py)
TORCH :=
# without an NVIDIA driver torch needs no gigabytes of CUDA; where PyTorch's index does not answer, pip's own one serves
ifeq ($(wildcard /proc/driver/nvidia/version),)
PIP += --constraint constraints-cpu.txt
TORCH := $(PIP) --retries 0 --timeout 10 --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null || true
endif
# files of tests go to workers as wholes, in the order of tests/conftest.py
WORKERS := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
FAILED := .pytest_cache/v/cache/lastfailed
TESTS ?= tests/
EXCEPT ?=
REPORT ?= .npubench/report.html
PREFLIGHT ?= tpu-v5e and not tp1 and not tp8
PREFLIGHT_QUALCOMM ?= snapdragon-8-elite
# hundreds of processes import the same modules: they keep the byte code, also where the environment says otherwise
export PYTHONDONTWRITEBYTECODE :=
# the end of a run says of each case what pytest would say
BRIEF := --no-header --tb=line -r N -o verbosity_test_cases=-1

.PHONY: bench test test-again test-all test-vllm preflight preflight-qualcomm lint docs pictures audit clean

bench: $(VENV)/.bench
	$(BIN)/python -m pytest -m cpu suites/ --npubench-report $(REPORT) --npubench-disturbed mark $(BRIEF)

test: $(VENV)/.test
	rm -f $(FAILED)
	$(BIN)/python -m pytest $(TESTS) $(EXCEPT:%=--ignore=%) -m "not soak" $(WORKERS)

# a run of tests begins without the failures of earlier ones, so that these are its own
test-again: $(VENV)/.test
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 1

test-all: $(VENV)/.test
	$(BIN)/python -m pytest $(TESTS) $(EXCEPT:%=--ignore=%) --hypothesis-profile=soak $(WORKERS)

test-vllm: $(VENV)/.test $(VLLM_VENV)/.vllm
	rm -f $(FAILED)
	NPUBENCH_VLLM_PYTHON=$(CURDIR)/$(VLLM_VENV)/bin/python OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/extensions/vllm tests/engines/http/test_bench_serve.py --hypothesis-profile=soak $(WORKERS)

preflight: $(VENV)-preflight/.preflight
	$(VENV)-preflight/bin/python -m pytest --noconftest tests/extensions/compilers/compiled/test_on_libtpu.py tests/extensions/planning/test_aiconfigurator.py \
		tests/extensions/planning/test_real_configs.py -p no:cacheprovider
	$(VENV)-preflight/bin/python -m pytest -m tpu suites/compiled -k "$(PREFLIGHT)" --npubench-journal .npubench/preflight.jsonl --npubench-report .npubench/preflight.html $(BRIEF)

preflight-qualcomm: $(VENV)-qualcomm/.preflight
	$(VENV)-qualcomm/bin/python -m pytest --noconftest tests/extensions/compilers/qnn/test_sessions.py tests/extensions/compilers/qnn/test_product.py \
		tests/extensions/compilers/qnn/test_binary_info.py -p no:cacheprovider
	$(VENV)-qualcomm/bin/python -m pytest -m qualcomm suites/graphs/test_compiler.py -k "$(PREFLIGHT_QUALCOMM)" --npubench-journal .npubench/preflight-qualcomm.jsonl --npubench-report .npubench/preflight-qualcomm.html $(BRIEF)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions .github/actions/*/action.yml
	$(BIN)/zizmor --offline --quiet .github/

docs: $(VENV)-docs/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict

pictures: $(VENV)/.bench
	$(BIN)/python docs/pictures.py

audit: $(VENV)-audit/bin/pip-audit
	for lock in locks/*.txt; do $(VENV)-audit/bin/pip-audit --strict --disable-pip --no-deps --requirement $$lock || exit 1; done

# the versions of the lock files: baselines are a compiler's own
$(VENV)-preflight/.preflight: pyproject.toml locks/tpu.txt $(SUITES)
	$(PYTHON) -m venv $(VENV)-preflight
	$(VENV)-preflight/bin/python $(INSTALL) --constraint locks/tpu.txt --editable '.[tpu-compiler,aiconfigurator]'
	touch $@

$(VENV)-qualcomm/.preflight: pyproject.toml locks/qualcomm.txt $(SUITES)
	$(PYTHON) -m venv $(VENV)-qualcomm
	$(VENV)-qualcomm/bin/python $(INSTALL) --constraint locks/qualcomm.txt --editable '.[qualcomm-compiler]'
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.bench: pyproject.toml constraints-cpu.txt $(SUITES) | $(BIN)/python
	$(TORCH)
	$(PIP) --editable '.[cpu]'
	touch $@

$(VENV)/.test: pyproject.toml constraints-cpu.txt $(SUITES) | $(BIN)/python
	$(TORCH)
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints-cpu.txt $(SUITES) | $(BIN)/python
	$(TORCH)
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)-docs/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python $(INSTALL) --editable '.[docs]'
	touch $@

$(VENV)-audit/bin/pip-audit:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python $(INSTALL) 'pip-audit>=2.9'

$(VLLM_VENV)/.vllm: .ci/setup-vllm constraints-cpu.txt pyproject.toml
	PYTHON=$(PYTHON) .ci/setup-vllm $(VLLM_VENV)
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-docs $(VENV)-preflight $(VENV)-qualcomm $(VLLM_VENV) .npubench
