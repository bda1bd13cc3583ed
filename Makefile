# mlxfp: every command works from a fresh clone. The first one creates .venv and installs; later ones use it.
# Written for GNU make 3.81, which macOS has.

VENV    := .venv
PYTHON  := $(VENV)/bin/python
# The extra to install: cuda where an NVIDIA driver answers, else cpu (which adds nothing on macOS). Or say it: make demo BACKEND=cpu
BACKEND = $(shell if nvidia-smi -L >/dev/null 2>&1; then echo cuda; else echo cpu; fi)
# The share of core and data, in percent of branches, that `make coverage` must reach. It only rises.
COVERAGE_FLOOR ?= 99

PYTEST   := $(PYTHON) -m pytest
# A process on each core, which takes tests from the others when it has none left.
PARALLEL := --numprocesses=auto --dist=worksteal
COVERAGE := --cov --cov-report=term --cov-fail-under=$(COVERAGE_FLOOR)
# The tests that measure it. To measure doubles their time, so `make test` does not.
MEASURED := tests/core tests/data tests/properties/core tests/properties/data mlxfp/core mlxfp/data

# With other versions of the packages that mlxfp needs, these extras and the tests of these folders are enough.
EXTRAS := testing vision audio chat remote processes
empty  :=
comma  := ,
INSTALL_TESTS = ".[$(BACKEND),$(subst $(empty) $(empty),$(comma),$(EXTRAS))]" pytest pytest-randomly pytest-cov pytest-xdist
NARROW := $(foreach room,core data text collators,tests/$(room) tests/properties/$(room))

.PHONY: help demo test coverage test-thorough test-lowest test-newest test-browser check format bench docs clean compiler

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/installed-run  ## install and run the main job: a folder of synthetic passengers to a blend of models to a submission
	@$(PYTHON) -m mlxfp.runtime
	@$(PYTHON) -m mlxfp data synthetic titanic --out runs/passengers
	@$(PYTHON) -m mlxfp run --data runs/passengers --minutes 0.5 name=demo $(ARGS)

test: $(VENV)/installed-dev  ## install and run the tests, the doctests, the pages and the examples
ifeq ($(strip $(ARGS)),)
	$(PYTEST) $(PARALLEL) $(MEASURED)
	$(PYTEST) $(PARALLEL) $(MEASURED:%=--ignore=%) --ignore=tests/browser
else
	$(PYTEST) $(ARGS)
endif

coverage: $(VENV)/installed-dev  ## run the tests of core and data, and fail where they leave out more branches than before
	$(PYTEST) $(PARALLEL) $(COVERAGE) $(MEASURED)

test-thorough: $(VENV)/installed-dev  ## the tests that draw examples, with many more of them (an hour or more)
	$(PYTEST) $(PARALLEL) --hypothesis-profile=thorough -m hypothesis -o faulthandler_timeout=0 $(ARGS)

test-lowest:  ## run tests with the lowest versions of other packages that pyproject.toml allows, in .venv-lowest
	@$(MAKE) --no-print-directory VENV=.venv-lowest .venv-lowest/installed-lowest
	.venv-lowest/bin/python -m pytest $(or $(ARGS),$(PARALLEL) $(NARROW))

test-newest:  ## run tests with the newest versions, released or not, in .venv-newest; a failure is reported, and make succeeds
	@$(MAKE) --no-print-directory VENV=.venv-newest .venv-newest/installed-newest && \
	.venv-newest/bin/python -m pytest $(or $(ARGS),$(PARALLEL) $(NARROW)) || \
	echo "*** FAILED with the newest versions of other packages, see above. The versions that are required may be fine. ***"

check: $(VENV)/installed-dev  ## format, lint, types, and imports that point one way
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy mlxfp $(wildcard examples/*.py benchmarks/*.py tests/typing/*.py)
	$(VENV)/bin/lint-imports

format: $(VENV)/installed-dev  ## let ruff format the code and fix what it can
	$(PYTHON) -m ruff check --fix --exit-zero --quiet .
	$(PYTHON) -m ruff format .

bench: $(VENV)/installed-bench  ## measure against other libraries, side by side
	$(PYTHON) -m benchmarks $(ARGS)

docs: $(VENV)/installed-docs  ## build the site of the documentation into build/site
	$(PYTHON) docs/make_site.py
	$(VENV)/bin/zensical build --clean --strict --config-file build/zensical.toml

test-browser: docs $(VENV)/installed-browser  ## look at the site, reports and notebooks in Chromium; pictures go to build/screens
	MLXFP_TEST_BROWSER=1 $(PYTEST) $(PARALLEL) tests/browser $(ARGS)

clean:  ## remove .venv, the site and the caches of the tools
	rm -rf $(VENV) .venv-lowest .venv-newest build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage

# A stamp is newer than pyproject.toml once its extras are installed. The dev extra holds all that the demo needs.
$(VENV)/installed-run: pyproject.toml | compiler $(PYTHON)
	@echo "Installing mlxfp[$(BACKEND),config,plots,boosting] into $(VENV) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable ".[$(BACKEND),config,plots,boosting]"
	@touch $@

$(VENV)/installed-dev: pyproject.toml | compiler $(PYTHON)
	@echo "Installing mlxfp[$(BACKEND),dev] into $(VENV) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable ".[$(BACKEND),dev]"
	@touch $(VENV)/installed-run $@

$(VENV)/installed-lowest: pyproject.toml | compiler $(PYTHON)
	@echo "Installing mlxfp and the lowest versions of what it needs into $(VENV) ..."
	@$(PYTHON) .ci/lowest.py $(EXTRAS) > $(VENV)/lowest.txt
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --constraint $(VENV)/lowest.txt --editable $(INSTALL_TESTS)
	@touch $@

$(VENV)/installed-newest: pyproject.toml | compiler $(PYTHON)
	@echo "Installing mlxfp and the newest versions of what it needs, released or not, into $(VENV) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --pre --editable $(INSTALL_TESTS)
	@touch $@

$(VENV)/installed-bench: pyproject.toml | compiler $(PYTHON)
	@echo "Installing mlxfp[$(BACKEND),bench] into $(VENV) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable ".[$(BACKEND),bench]"
	@touch $(VENV)/installed-run $@

$(VENV)/installed-docs: pyproject.toml | $(PYTHON)
	@echo "Installing mlxfp[$(BACKEND),docs] into $(VENV) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable ".[$(BACKEND),docs]"
	@touch $@

$(VENV)/installed-browser: pyproject.toml | compiler $(PYTHON)
	@echo "Installing mlxfp[$(BACKEND),dev,browser] into $(VENV) ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable ".[$(BACKEND),dev,browser]"
	@touch $(VENV)/installed-run $(VENV)/installed-dev $@

# MLX has wheels for Python 3.11 to 3.14. Another one than the first found: make demo BASE_PYTHON=/path/to/python3.12
$(PYTHON):
	@for python in $(BASE_PYTHON) python3 python3.13 python3.12 python3.11 python3.14; do \
	    if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' >/dev/null 2>&1; then \
	        echo "Creating $(VENV) with `$$python --version` ..."; \
	        $$python -m venv $(VENV) && exit 0; \
	        rm -rf $(VENV); exit 1; \
	    fi; \
	done; \
	echo "mlxfp needs Python 3.11 to 3.14, and none was found. Install one (macOS: brew install python@3.12;"; \
	echo "Debian, Ubuntu: apt-get install python3 python3-venv), or name one: make demo BASE_PYTHON=/path/to/python3.12"; \
	exit 1

compiler:
	@if [ "`uname -s`" = Linux ] && [ "$(BACKEND)" = cpu ] && ! command -v g++ >/dev/null 2>&1; then \
	    echo "MLX compiles training steps with g++ on Linux without a GPU, and there is none."; \
	    echo "Install it (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++) and run make again."; \
	    exit 1; \
	fi
