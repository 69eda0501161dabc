# Two commands: `make quickstart` sets up and runs the first audit, `make test` sets up and runs the checks.
PYTHON ?= python3
BIN := .venv/bin
UV := uv==0.13.8

.PHONY: quickstart install docs test test-all test-orchestration test-clusters test-whole test-audits test-tasks test-gpu check check-types check-tests lint types chaos frozen bench pictures notebooks wheel lock clean

# All packages if there is an NVIDIA GPU or they are already installed; otherwise the packages for CPUs.
INSTALLED := .venv/$(if $(shell nvidia-smi -L 2>/dev/null)$(wildcard .venv/ready),ready,cpu)

quickstart: $(INSTALLED)
	$(BIN)/engram run unique_feature --preset quickstart

install: $(INSTALLED)

# Five parts of tests, lint and types run in parallel: the first four parts mostly wait for clusters, servers and disks.
# Tests of pages are in one part with trainings, and benches with whole commands, so that the parts take similar times.
# Tests with a Ray cluster are in two parts, because each process of tests starts its own cluster, which takes seconds.
ORCHESTRATION := tests/orchestrator $(foreach name,live search,tests/dashboards/test_$(name).py)
TYPED := tests/orchestrator/scaffold/test_scaffold.py::test_a_new_audit_is_typed \
	tests/orchestrator/spec/test_options.py::test_type_checkers_know_options_and_allow_fields
AUDITS := $(foreach name,deja_vu density examples forgetting given label predictions questions relational,$(wildcard tests/test_$(name)*.py)) tests/tasks/audits
CLUSTERS := $(foreach name,chains cluster monitoring networks search whole,tests/test_$(name).py)
WHOLE := $(filter-out $(AUDITS) $(CLUSTERS),$(wildcard tests/test_*.py)) tests/bench tests/studies
PARTS := lint types test-orchestration test-clusters test-whole test-audits test-tasks
BESIDE := $(BIN)/python -m tests.support.shared_forks $(MAKE) --no-print-directory --jobs $(words $(PARTS)) --keep-going --output-sync=line $(PARTS)
PYTEST := $(BIN)/python -m pytest
ALONE = $(PYTEST)
# The tests start thousands of processes; without stored bytecode, each one would compile all modules again. Pytest
# compiles test modules itself, with its assertions.
COMPILE := $(BIN)/python -m compileall -q -x /test_ engram orchestrator tasks dashboards tests bench studies measurement

test: .venv/ready
	@echo "lint, types, and in five parts all tests that are not slow: each prints its result when it finishes (10 minutes on 2 cores)"
	@$(COMPILE)
	@$(BESIDE) PYTEST='$(PYTEST) -m "not slow"'

# During development: lint, types and the fast tests that the changes since BASE affect, nearest first, about a minute.
check: .venv/ready
	@$(MAKE) --no-print-directory --jobs 3 --keep-going --output-sync=line lint check-types check-tests

check-types: .venv/ready
	$(BIN)/mypy

check-tests: .venv/ready
	$(BIN)/python -m tests.affected --base $(or $(BASE),HEAD)

# Also the slow tests, and the coverage of lines and branches in the parts that run the code in their own process; coverage
# would slow the other parts down further.
test-all: .venv/ready
	@echo "lint, types, and in five parts all tests: each prints its result when it finishes (a quarter of an hour on 2 cores)"
	@rm -f .coverage .coverage.*
	@$(COMPILE)
	@$(BESIDE) PYTEST='$(BIN)/coverage run -m pytest -p tests.support.measurement --cpu-durations' ALONE='$(PYTEST) --cpu-durations'
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

test-tasks: .venv/ready
	$(PYTEST) $(addprefix --ignore=,$(ORCHESTRATION) $(CLUSTERS) $(WHOLE) $(AUDITS))

# Tests that need an NVIDIA GPU. The GPU is hidden from all other tests, because they compare bits.
test-gpu: .venv/ready
	$(PYTEST) --gpu tests/tasks/training/test_gpu.py tests/tasks/numerics/test_nearest_neighbours.py

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Two tests run mypy. It then has its cache of all imported modules.
types: .venv/ready
	$(BIN)/mypy
	$(ALONE) -q --no-header $(TYPED)

# Injects faults of every kind and compares the tables bit for bit: make chaos CHAOS="--faults 20 --seed 1"
chaos: .venv/ready
	$(BIN)/python -m tests.chaos $(CHAOS)

# Changes for users since the commit BASE: plans, tables, figures and texts, computed here for both versions.
frozen: .venv/ready
	$(BIN)/python -m tests.frozen $(BASE)

bench: .venv/ready
	$(BIN)/python -m bench.orchestration
	$(BIN)/python -m bench.training

# Builds the site of docs/ in site/ and rewrites the pages of commands and of Python; a broken link is an error.
docs: .venv/ready
	$(BIN)/python -m orchestrator.cli.reference docs
	$(BIN)/python -m orchestrator.python_stub
	$(BIN)/zensical build --strict

# Renews the pictures of README and docs, with Chromium, from runs of all quickstarts in PICTURES_STORE.
pictures: .venv/ready
	$(BIN)/python -m bench.pictures

# Executes the notebooks in examples/ and stores their outputs.
notebooks: .venv/ready
	$(BIN)/python -m bench.notebooks

# The machines of cluster.yaml install dist/*.whl, so wheels of other versions are deleted; other files in dist/ remain.
wheel: .venv/ready
	rm -f dist/engram_audit-*.whl
	$(BIN)/python -m hatchling build --target wheel

# Two sets of packages, each pinned by a lock with a hash for every file: all packages including tests, benches and CUDA;
# and the packages that audits need without an NVIDIA GPU. The index has one build of PyTorch for Linux, which loads CUDA's
# libraries also on a CPU, but starts without Triton, cuSOLVER and the libraries of faiss-gpu.
.venv/ready: requirements.lock pyproject.toml
	$(call environment,$<)

.venv/cpu: requirements-cpu.lock pyproject.toml
	$(call environment,$<)

# Python compiles a module at its first import and keeps the bytecode. An installation compiles what most runs import, so
# that processes that start together do not all compile the same modules; compiling everything takes twice the processor
# time. With PYTHONDONTWRITEBYTECODE, every process would compile the remaining modules again.
unexport PYTHONDONTWRITEBYTECODE
WARM := $(BIN)/python -c 'import matplotlib.pyplot, mlflow.store.tracking.sqlalchemy_store, ray, scipy.stats, sklearn.datasets, torchvision, transformers'

# The marks of installed sets are deleted first, so that an interrupted installation does not count.
define environment
@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit(f"Engram needs Python 3.11 to 3.13, but $(PYTHON) is {v[0]}.{v[1]}; name another one: make PYTHON=python3.12 $(MAKECMDGOALS)")'
@echo 'Installing the packages of $(1) into .venv; uv reuses its cache.'
@sed -n 's/^# \(To download: .*\)/\1/p' $(1)
@rm -f .venv/ready .venv/cpu
$(PYTHON) -m venv .venv
$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
$(BIN)/uv pip sync --python $(BIN)/python --require-hashes $(1)
$(WARM)
$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
@touch $@
endef

# faiss-gpu would install a second CUDA; all other versions equal the versions of the whole set.
CPU := printf "faiss-cpu>=1.12\nfaiss-gpu; python_version < '3'\n"
WITHOUT := $(addprefix --no-emit-package ,triton nvidia-cusolver)

lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --group dev pyproject.toml -o requirements.lock
	$(CPU) | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --constraint requirements.lock --override - $(WITHOUT) --all-extras --group install --custom-compile-command "make lock" pyproject.toml -o requirements-cpu.lock
	PATH=$(BIN):$$PATH $(BIN)/python -m bench.downloads requirements.lock requirements-cpu.lock

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache site
