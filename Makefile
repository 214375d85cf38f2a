# make demo, make test: all the set-up there is. A virtual environment is made in .venv when there is none.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
# uv installs in seconds what takes pip a minute. Where it does not (it reads no pip.conf), pip does.
UV := $(BIN)/uv pip install --python $(BIN)/python --quiet --constraint constraints.txt
INSTALL = $(UV) $(WANTED) 2>/dev/null || $(PIP) $(WANTED)
# Every process of the tests would compile all that it imports, were it forbidden to keep it.
unexport PYTHONDONTWRITEBYTECODE
CODE := src gen backends triage reducer bisect tui tests benchmarks samples hatch_build.py

.PHONY: demo test test-all test-slow tests tests-all repeat drills fuzz-self bench docs dist compiled format check clean

demo: $(VENV)/demo.stamp
	$(BIN)/python samples/demo.py

# Checks and tests side by side: mypy takes a single core, and so does compiling.
test test-all: $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory -j2 check $(@:test%=tests%)

# Tests run in random order; make test SEED=n repeats one (tests/README.md).
SEED ?=
PYTEST := $(BIN)/python -m pytest $(if $(SEED),--randomly-seed=$(SEED))
SPREAD := -q -rfEs -n auto --dist worksteal
THOROUGH := --hypothesis-profile=thorough

tests: $(VENV)/compiled.stamp
	$(PYTEST) $(SPREAD)

tests-all: $(VENV)/compiled.stamp
	$(PYTEST) $(SPREAD) $(THOROUGH) -m "slow or not slow"

# The slow tests, or with SHARD=0, 1 or 2 a third of them.
SHARD ?=
test-slow: $(VENV)/compiled.stamp
	$(PYTEST) $(SPREAD) $(THOROUGH) -m slow $(if $(SHARD),--shard=$(SHARD))

# What one process of the last run ran, up to the first failure.
WORKER ?= gw0
repeat: $(VENV)/dev.stamp
	$(PYTEST) -n0 -x -m "slow or not slow" --order=.test-order/$(WORKER)

# What docs/explanation/security.md promises, tried: hostile files, kills, walls, memory, readers.
drills: $(VENV)/dev.stamp
	for drill in hostile_drill kills isolation_drill memory_drill; do $(BIN)/python tests/support/$$drill.py || exit 1; done
	$(MAKE) --no-print-directory fuzz-self

# Our own readers fed with damaged files; what is found lies in benchmarks/results/self-fuzz.
MINUTES ?= 60
fuzz-self: $(VENV)/dev.stamp
	nice -n 10 $(BIN)/python -W ignore tests/support/self_fuzz.py --minutes $(MINUTES)

bench: $(VENV)/dev.stamp
	for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# The site in site/, the links, and what commands of README and docs print.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/docs.stamp
	$(BIN)/mkdocs build --strict --quiet
	$(PYTEST) $(SPREAD) tests/test_docs.py tests/cli/test_documented.py tests/cli/test_how_to.py tests/cli/test_outputs.py

# An sdist and a pure wheel in dist/, looked into. TAG=v1.2.0 asks for the version of that tag.
TAG ?=
dist: $(VENV)/dev.stamp
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	DISTRIBUTIONS=dist $(PYTEST) -q -n0 -m "slow or not slow" tests/test_distributions.py
	$(if $(TAG),test -f dist/opsieve-$(TAG:v%=%).tar.gz)

# A wheel in dist/ whose generator is compiled (docs/how-to/generate.md).
compiled: $(VENV)/dev.stamp
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 $(BIN)/python -m build --wheel --no-isolation --outdir dist .

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix --quiet $(CODE) || true
	$(BIN)/ruff format --quiet $(CODE)

check: $(VENV)/dev.stamp
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --config pyproject.toml

clean:
	rm -rf $(VENV) dist site .test-order .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit("opsieve needs Python 3.11 or newer; this is %s (try make PYTHON=python3.12)" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile "pip>=25.1" uv
	@touch $@

$(VENV)/demo.stamp: WANTED := --editable .
$(VENV)/demo.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(INSTALL)
	@touch $@

$(VENV)/dev.stamp: WANTED := --editable ".[tvm,transformers]" --editable benchmarks/research --group dev
$(VENV)/dev.stamp: $(VENV)/pip.stamp pyproject.toml benchmarks/research/pyproject.toml constraints.txt
	$(INSTALL)
	@touch $@ $(VENV)/demo.stamp

# The site ships mermaid, so that its diagrams draw without another host.
MERMAID := 11.17.2
$(VENV)/docs.stamp: WANTED := --group docs
$(VENV)/docs.stamp: $(VENV)/dev.stamp
	$(INSTALL)
	npm pack --silent --pack-destination $(VENV) mermaid@$(MERMAID) && \
	tar -xzf $(VENV)/mermaid-$(MERMAID).tgz -C $(VENV) package/dist/mermaid.min.js || \
	echo "npm is missing: readers' browsers fetch mermaid from its CDN"
	@touch $@

# What tests and compilers import is compiled once, not in each process of the tests.
$(VENV)/compiled.stamp: $(VENV)/dev.stamp
	-@$(BIN)/python -m pytest --collect-only -qq -n0 -p no:randomly >/dev/null
	-@$(BIN)/python -W ignore -c "import tvm.relax, onnx.reference, onnxoptimizer, onnxscript.optimizer, onnxsim, onnxslim" >/dev/null 2>&1
	@touch $@
