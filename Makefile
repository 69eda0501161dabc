# Two commands: `make quickstart` sets up and runs the first audit, `make test` sets up and runs the checks.
PYTHON ?= python3
BIN := .venv/bin
UV := uv==0.13.8

.PHONY: quickstart install docs test test-all test-orchestration test-clusters test-whole test-audits test-tasks test-gpu check check-types check-tests lint types chaos frozen bench wheel lock clean

# The whole set where there is an NVIDIA GPU, or where it is installed already; else what runs without one.
INSTALLED := .venv/$(if $(shell nvidia-smi -L 2>/dev/null)$(wildcard .venv/ready),ready,cpu)

quickstart: $(INSTALLED)
	$(BIN)/engram run unique_feature --preset quickstart

install: $(INSTALLED)

# In five parts side by side, lint and types beside them: much of the first four is waiting for clusters, servers and disks.
# Pages are tested beside trainings, benches beside whole commands, so that the parts end at about the same time.
# Tests that need a cluster of Ray are in two parts: each process of tests starts its own cluster, which takes seconds.
ORCHESTRATION := tests/orchestrator $(foreach name,live search,tests/dashboards/test_$(name).py)
TYPED := tests/orchestrator/scaffold/test_scaffold.py::test_a_new_audit_is_typed
AUDITS := $(foreach name,deja_vu density examples forgetting given label predictions questions relational,$(wildcard tests/test_$(name)*.py)) tests/tasks/audits
CLUSTERS := $(foreach name,chains cluster monitoring networks search whole,tests/test_$(name).py)
WHOLE := $(filter-out $(AUDITS) $(CLUSTERS),$(wildcard tests/test_*.py)) tests/bench tests/studies
PARTS := lint types test-orchestration test-clusters test-whole test-audits test-tasks
BESIDE := $(MAKE) --no-print-directory --jobs $(words $(PARTS)) --keep-going --output-sync=line $(PARTS)
PYTEST := $(BIN)/python -m pytest
ALONE = $(PYTEST)
# The tests start some thousand processes; where none may write bytecode, each would compile the whole house anew.
COMPILE := $(BIN)/python -m compileall -q engram orchestrator tasks dashboards tests bench studies measurement

test: .venv/ready
	@echo "lint, types, and in five parts all tests that are not slow: each says at its end what it found (10 minutes on 2 cores)"
	@$(COMPILE)
	@$(BESIDE) PYTEST='$(PYTEST) -m "not slow"'

# While you work: lint, types and the fast tests that the changes since BASE affect, nearest first, for about a minute.
check: .venv/ready
	@$(MAKE) --no-print-directory --jobs 3 --keep-going --output-sync=line lint check-types check-tests

check-types: .venv/ready
	$(BIN)/mypy

check-tests: .venv/ready
	$(BIN)/python -m tests.affected --base $(or $(BASE),HEAD)

# The slow ones too, and which lines and branches of the code were never run by the others, in the parts that run it in their
# process: to count them would make the slow ones slower still.
test-all: .venv/ready
	@echo "lint, types, and in five parts all tests: each says at its end what it found (a quarter of an hour on 2 cores)"
	@rm -f .coverage .coverage.*
	@$(COMPILE)
	@$(BESIDE) PYTEST='$(BIN)/coverage run -m pytest --cpu-durations' ALONE='$(PYTEST) --cpu-durations'
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-orchestration: .venv/ready
	$(PYTEST) $(addprefix --deselect=,$(TYPED)) $(ORCHESTRATION)

test-clusters: .venv/ready
	$(ALONE) $(CLUSTERS)

test-whole: .venv/ready
	$(ALONE) $(WHOLE)

test-audits: .venv/ready
	$(PYTEST) $(AUDITS)

# Tests that compute: they rarely wait.
test-tasks: .venv/ready
	$(PYTEST) $(addprefix --ignore=,$(ORCHESTRATION) $(CLUSTERS) $(WHOLE) $(AUDITS))

# What only a machine with an NVIDIA GPU can show. All other tests see no GPU, since they compare bits.
test-gpu: .venv/ready
	$(PYTEST) --gpu tests/tasks/training/test_gpu.py tests/tasks/numerics/test_nearest_neighbours.py

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The written audit is checked with what mypy has just found out about all modules that it imports.
types: .venv/ready
	$(BIN)/mypy
	$(ALONE) -q --no-header $(TYPED)

# Faults of every kind, after each of which the tables must come out bit for bit: make chaos CHAOS="--faults 20 --seed 1"
chaos: .venv/ready
	$(BIN)/python -m tests.chaos $(CHAOS)

# What this tree changes for users since the commit BASE: plans, tables, figures and texts, all computed here for both.
frozen: .venv/ready
	$(BIN)/python -m tests.frozen $(BASE)

bench: .venv/ready
	$(BIN)/python -m bench.orchestration
	$(BIN)/python -m bench.training

# The pages of docs/ as a site in site/, with the page of commands written anew; a link that leads nowhere ends it.
docs: .venv/ready
	$(BIN)/python -m orchestrator.cli.reference docs
	$(BIN)/python -m orchestrator.python_stub
	$(BIN)/zensical build --strict

# What the machines of cluster.yaml install: dist/*.whl, so a wheel of another version goes; nothing else in dist/ does.
wheel: .venv/ready
	rm -f dist/engram_audit-*.whl
	$(BIN)/python -m hatchling build --target wheel

# Two sets of packages, each pinned by a lock with a hash for every file: all that tests and benches need too, with CUDA;
# and what audits need on a machine without an NVIDIA GPU. The index has PyTorch for Linux in one build only, which loads
# CUDA's libraries though it computes on the CPU; Triton, cuSOLVER and those of faiss-gpu it starts without.
.venv/ready: requirements.lock pyproject.toml
	$(call environment,$<)

.venv/cpu: requirements-cpu.lock pyproject.toml
	$(call environment,$<)

# Python compiles a module at its first import and keeps the bytecode. An installation compiles what most runs import, so
# that processes which start together do not each compile it: to compile everything takes twice the processor time. With
# PYTHONDONTWRITEBYTECODE every process would compile the others again.
unexport PYTHONDONTWRITEBYTECODE
WARM := $(BIN)/python -c 'import matplotlib.pyplot, mlflow.store.tracking.sqlalchemy_store, ray, scipy.stats, sklearn.datasets, torchvision, transformers'

# The marks of what is installed go first: an installation that is broken off counts as none.
define environment
@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit(f"Engram needs Python 3.11 to 3.13, but $(PYTHON) is {v[0]}.{v[1]}; name another one: make PYTHON=python3.12 $(MAKECMDGOALS)")'
@echo 'Installing what $(1) pins into .venv; what uv has in its cache is not loaded again.'
@sed -n 's/^# \(To download: .*\)/\1/p' $(1)
@rm -f .venv/ready .venv/cpu
$(PYTHON) -m venv .venv
$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
$(BIN)/uv pip sync --python $(BIN)/python --require-hashes $(1)
$(WARM)
$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
@touch $@
endef

# faiss-gpu would bring a second CUDA; the other versions are those of the whole set.
CPU := printf "faiss-cpu>=1.12\nfaiss-gpu; python_version < '3'\n"
WITHOUT := $(addprefix --no-emit-package ,triton nvidia-cusolver)

lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --group dev pyproject.toml -o requirements.lock
	$(CPU) | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --constraint requirements.lock --override - $(WITHOUT) --all-extras --group install --custom-compile-command "make lock" pyproject.toml -o requirements-cpu.lock
	PATH=$(BIN):$$PATH $(BIN)/python -m bench.downloads requirements.lock requirements-cpu.lock

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache site
