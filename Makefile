# make install   set up .venv with what the job and the demonstration need: .venv/bin/dedup-job
# make install-dev   add what tests, linters and benchmarks need; `make test` and others do it by themselves
# make run       the demonstration, beside a MongoDB server of its own; its data stays in .demo
# make test      the tests, but for those that take long: about ten minutes on two cores
# make test-long those that take long: faults at many moments, clusters, bounds of memory
#                (LONG="long and not longest" leaves out those of more than about twelve seconds)
# make test-newest   the tests of `make test` on the newest versions that pyproject.toml allows, in .venv-newest
#                (PYTHON=python3.13 takes a newer Python, PROCESSES=2 runs two tests at once)
# make test-mongo7   the integration tests on MongoDB 7.0 (downloads it once, into .mongod7; Debian 12)
# make check     format, lint, types, import contract, all tests: says whether a change is good
# make soak      the long campaigns against the job (some hours; --only NAME runs one); its table goes to docs/contributing/soak.md
# make soak-mongo7   a twentieth of each campaign on MongoDB 7.0
# make dist      a wheel and a source distribution, in dist
# make bench     all benchmarks: make bench DATA=DIR TOOLS=DIR [QUICK=--quick]; see scripts/README.md
# make docs      the documentation as a site, in site/index.html (downloads mkdocs once, into .venv-docs)
# make format    put the code into the house's format
# make clean     remove everything that make made

PYTHON ?= python3
LONG ?= long or longest
NEWEST ?= .venv-newest
PROCESSES ?= auto
BIN := .venv/bin
INSTALLED := .venv/.installed
INSTALLED_DEV := .venv/.installed-dev
PYTEST := $(BIN)/python -m pytest --quiet --numprocesses $(PROCESSES) --dist worksteal
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: install install-dev run test test-long test-newest test-mongo7 lint check soak soak-mongo7 dist bench docs format clean

install: $(INSTALLED)

install-dev: $(INSTALLED_DEV)

run: install
	$(BIN)/python scripts/dev/local_mongod.py --dbpath .demo/db -- $(BIN)/python -m scripts.demo

test: install-dev
	$(PYTEST) -m "not long and not longest"

test-long: install-dev
	$(PYTEST) -m "$(LONG)"

test-newest:
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[bench,build,dev,page,server,spark]'
	$(NEWEST)/bin/python -m pip --disable-pip-version-check freeze --exclude-editable
	$(NEWEST)/bin/python -m pytest --quiet --numprocesses $(PROCESSES) --dist worksteal -m "not long and not longest"

test-mongo7: install-dev
	$(BIN)/python -m scripts.dev.local_mongod7 -- $(PYTEST) tests/integration tests/slow

lint: install-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test test-long

soak: install-dev
	$(BIN)/python -m scripts.dev.soak

soak-mongo7: install-dev
	$(BIN)/python -m scripts.dev.soak --mongod7

dist: install
	$(BIN)/python -m build --no-isolation

bench: install-dev
	$(BIN)/python -m scripts.bench.end_to_end "$(DATA)/leetcode/docs.jsonl.gz" \
	  --baseline "$(TOOLS)/seed_baseline.py" $(QUICK)
	$(BIN)/python -m scripts.bench.against_peers --data "$(DATA)" --tools "$(TOOLS)" $(QUICK)
	$(BIN)/python -m scripts.bench.library --data "$(DATA)" --tools "$(TOOLS)" $(QUICK)
	$(BIN)/python -m scripts.bench.scaling $(QUICK)
	$(BIN)/python -m scripts.bench.throttle $(QUICK)
	$(BIN)/python -m scripts.bench.refused $(QUICK)
	$(BIN)/python -m scripts.bench.estimate --data "$(DATA)" $(QUICK)
	$(BIN)/python -m scripts.bench.memory $(QUICK)

docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "open site/index.html, or for the search: python -m http.server --directory site"

.venv-docs/.installed: requirements-docs.txt
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check --quiet install --requirement requirements-docs.txt
	@touch $@

format: install-dev
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

clean:
	rm -rf .venv .venv-newest .venv-docs site .demo .mongod7 build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip comes last into a new environment: where it is, the environment is whole.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dedup-job needs Python 3.11 or later: make install PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv >/dev/null 2>&1 \
	  || virtualenv --quiet --clear --python "$(PYTHON)" .venv 2>/dev/null \
	  || uv venv --quiet --clear --seed --python "$(PYTHON)" .venv 2>/dev/null \
	  || { rm -rf .venv; echo "cannot make .venv: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }

# The locked sets hold the build backend too, so that the project itself is built with a locked version.
# Python compiles modules when they are first imported: most never are.
$(INSTALLED): requirements.lock pyproject.toml | $(BIN)/pip
	$(PIP) install --no-compile --require-hashes --requirement requirements.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/dedup-job compile >/dev/null
	@touch $@

$(INSTALLED_DEV): requirements-dev.lock $(INSTALLED)
	$(PIP) install --no-compile --require-hashes --requirement requirements-dev.lock
	@touch $@
