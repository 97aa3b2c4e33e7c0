# Everything from a fresh clone: `make train` trains Ant, `make test` checks and tests.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
LOCK := requirements/py311.txt
STAMP := $(VENV)/.installed
ARGS ?= task=Ant num_envs=1024 train.params.config.minibatch_size=4096 max_iterations=300
# Each candidate is run, not only looked up: a pyenv shim fails unless its version is active, and Debian splits venv off.
USABLE := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $$(type -ap python3.11 python3); do $$p -c '$(USABLE)' 2>/dev/null && { echo $$p; break; }; done)

.PHONY: train test check bench venv clean

train: $(STAMP)
	@$(PY) -m isaac_appo train $(ARGS)

# Alone on the machine: blocks that other load disturbs are rejected. BENCH="--quick" takes two minutes.
bench: $(STAMP)
	@$(PY) -m isaac_appo bench $(BENCH)

test: check
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q --durations=10

check: $(STAMP)
	@$(PY) -m ruff check .
	@$(PY) -m mypy

venv: $(STAMP)

$(STAMP): $(LOCK) setup.py pyproject.toml
	@$(or $(PYTHON),false) -c '$(USABLE)' || { echo "$(LOCK) needs Python 3.11 or later with venv, and '$(PYTHON)' is not:" \
		"install it, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up $(VENV) from $(LOCK), once"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install -qq --disable-pip-version-check -r $(LOCK)
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
