# Everything from a fresh clone: Python 3.11 or newer with pip and venv, and make. `make` alone lists the targets.
# The network is needed for the first install only; afterwards nothing here goes online.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One process per core, each of which has torch in memory; whoever is done first takes over half of what another has left.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint check docs release-check format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.core ## Install, train on noisy handwritten digits and compare, then clean up people's answers (a few minutes)
	@$(BIN)/pals demo
	@echo
	@echo "And from people's answers to a report: pals fit --example"
	@$(BIN)/pals fit --example

test: $(VENV)/.dev ## Install, then run the tests, on all cores (without those marked slow: a few minutes on two)
	@$(PYTEST)

test-all: $(VENV)/.dev ## The slow tests too: real processes, Ray, Slurm's hand-over, long checks; names the ten slowest
	@$(PYTEST) -m "not gpu" --durations=10

lint: $(VENV)/.dev ## Check format, style and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict src

check: lint test-all ## All that must pass before a commit: lint and test-all

docs: $(VENV)/.docs ## Build the documentation site into build/site, strictly: a broken link or an undocumented public name fails
	@$(BIN)/python docs/_site/stage.py build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html"

release-check: $(VENV)/.dev ## Build wheel and sdist and try them under all Pythons with the oldest and newest packages (half an hour)
	@$(BIN)/python tests/release/release_check.py $(ONLY)

format: $(VENV)/.dev ## Bring the code into the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## Remove caches and build outputs (.venv and runs/ stay)
	@rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: pip runs again only if what is to be installed has changed.
$(VENV)/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing PALS into $(VENV) (only once; torch is a large download)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Installing the tools for tests and checks into $(VENV) (only once)"
	@$(PIP) -e ".[dev]"
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@echo "Installing the tools for the documentation into $(VENV) (only once)"
	@$(PIP) -e ".[docs]"
	@touch $@
