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

VENV38 := .venv38
PY38 := $(VENV38)/bin/python
LOCK38 := requirements/py38.txt
STAMP38 := $(VENV38)/.installed
USABLE38 := import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 8))
PYENV = $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/3.8.*/bin/python3.8
PYTHON38 ?= $(shell for p in $$(type -ap python3.8) $(PYENV); do $$p -c '$(USABLE38)' 2>/dev/null && { echo $$p; break; }; done)
PIP38 := $(PY38) -m pip install -qq --disable-pip-version-check

.PHONY: train test check bench test-gpu bench-gpu docs venv test-py38 venv38 find-py38 clean

train: $(STAMP)
	@$(PY) -m isaac_appo train $(ARGS)

# Alone on the machine: blocks that other load disturbs are rejected. BENCH="--quick" takes two minutes.
bench: $(STAMP)
	@$(PY) -m isaac_appo bench $(BENCH)

# On a machine with an NVIDIA GPU; each test that needs one is skipped elsewhere, with the reason.
test-gpu: $(STAMP)
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -m gpu -rs --durations=10 tests/gpu tests/sim

# Alone on the GPU, 8 minutes after the kernels are compiled. BENCH="--quick" takes three.
bench-gpu: $(STAMP)
	@$(PY) -m isaac_appo bench --gpu $(BENCH)

docs: $(STAMP)
	@$(PY) -m mkdocs build

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

# Isaac Gym's Python. Not here: ruff and mypy, which know no 3.8; the benchmarks and the search through interleavings,
# which take long and in which nothing depends on a version.
NOT38 := tests/bench tests/schedule/test_interleavings.py
test-py38: $(STAMP38)
	@OMP_NUM_THREADS=1 $(PY38) -m pytest -q --durations=10 $(NOT38:%=--ignore=%)

venv38: $(STAMP38)

# The path of a usable Python 3.8, or nothing.
find-py38:
	@echo $(PYTHON38)

# Without the resolver, as the lock is complete; without build isolation, so that sdists build with the locked setuptools.
$(STAMP38): $(LOCK38) setup.py pyproject.toml
	@$(or $(PYTHON38),false) -c '$(USABLE38)' || { echo "$(LOCK38) needs Python 3.8 with venv, and '$(PYTHON38)' is not:" \
		"install it, or name one: make PYTHON38=/path/to/python3.8" >&2; exit 1; }
	@echo "Setting up $(VENV38) from $(LOCK38), once (about 6 GB)"
	@$(PY38) -m pip --version >/dev/null 2>&1 || $(PYTHON38) -m venv --clear $(VENV38)
	@$(PIP38) $$(grep -E '^(pip|setuptools|wheel)==' $(LOCK38))
	@$(PIP38) --no-deps --no-build-isolation -r $(LOCK38)
	@$(PY38) -m pip check --disable-pip-version-check
	@$(PIP38) --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) $(VENV38) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
