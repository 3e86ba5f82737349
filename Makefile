# Every target sets up what it needs in a virtual environment of its own; nothing has to be installed before.
#   make demo    genpolicy demo: train, evaluate and play small policies (minutes, no engine, no GPU); GAME=shogi
#   make test    the default tests; make test-thorough: those of seconds with a quicker sibling; make test-slow: of minutes
#   make torture kill, tear, fill, mutate for MINUTES=60 and print a table of failures
#   make lint    ruff, mypy --strict, pyright, and the documentation without a broken link
#   make docs    the documentation as a site, in build/site
VENV ?= .venv
GAME ?= chess
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
    $$p -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null && echo $$p && break; done)
BIN = $(VENV)/bin
GENPOLICY = $(BIN)/genpolicy
RUNS ?=
MINUTES ?= 60
MKDOCS = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
TORCH = $(shell sed -n 's/^torch==//p' constraints.txt)
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo docs test test-thorough test-slow torture lint setup setup-dev clean help

help:
	@sed -n 's/^#   //p' Makefile

# The CPU build of torch where there is no NVIDIA driver: gigabytes smaller. The first line takes it from wherever pip
# is told to look; the second from PyTorch's own index; the third is for systems whose only build is the plain one.
$(VENV)/.torch: constraints.txt
	@test -n "$(PYTHON)" || { echo "genpolicy needs Python 3.11 to 3.14 (make PYTHON=/path/to/python3.12 ...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	if command -v nvidia-smi >/dev/null 2>&1; then $(PIP) torch==$(TORCH); \
	else $(PIP) torch==$(TORCH)+cpu 2>/dev/null \
	  || $(PIP) torch==$(TORCH) --index-url https://download.pytorch.org/whl/cpu 2>/dev/null \
	  || $(PIP) torch==$(TORCH); fi
	touch $@

$(VENV)/.demo-$(GAME): $(VENV)/.torch pyproject.toml
	$(PIP) -c constraints.txt -e '.[$(GAME),web]'
	touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml
	$(PIP) -c constraints.txt -e '.[test]'
	touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.torch pyproject.toml
	$(PIP) -c constraints.txt -e '.[docs]'
	touch $@

setup: $(VENV)/.test
setup-dev: $(VENV)/.dev

# Tests run side by side, one thread each: torch's threads would fight each other. Those of the page share one browser.
# They start many Python programs, each of which would compile every module anew where no bytecode is written.
TESTS_ENV = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1
# A fifth of their time is waiting (engines, a browser), so there is one worker more than there are cores, four at most.
SIDE_BY_SIDE = -n $$($(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))') --dist loadgroup

test: $(VENV)/.test
	$(TESTS_ENV) $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-thorough: $(VENV)/.test
	$(TESTS_ENV) $(BIN)/python -m pytest -m 'thorough and not gpu' $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m 'slow and not gpu' $(PYTEST_ARGS)

torture: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture --minutes $(MINUTES) $(TORTURE_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(MKDOCS) build

docs: $(VENV)/.docs
	$(MKDOCS) build

demo: $(VENV)/.demo-$(GAME)
	@$(GENPOLICY) demo --game $(GAME) $(if $(RUNS),--out $(RUNS))

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
