# make demo | test | test-full | lint | wheel-check. Each installs what it needs into .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
RESULTS := build/test-full.xml
RECORD := benchmarks/results/test-full.json

.PHONY: help demo test test-full lint wheel-check clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo "make demo         a real model decodes twelve prompts: plain, chain and tree, side by side"
	@echo "make test         the tests, under 30 minutes on 2 cores"
	@echo "make test-full    the slow tests too, results in $(RECORD)"
	@echo "make lint         ruff, and mypy --strict on the package"
	@echo "make wheel-check  builds the wheel and runs it outside the checkout"
	@echo "make clean        removes the environment and what was built (not the cache of the demo)"

demo: .venv/.demo
	@echo "drafttree: running the demo (drafttree demo)"
	@$(BIN)/drafttree demo $(ARGS)

test: .venv/.dev
	@echo "drafttree: running the tests, without the slow ones (make test-full)"
	$(BIN)/python -m pytest -m "not full" --timeout 900 $(ARGS)

test-full: .venv/.dev
	@echo "drafttree: running all tests, results in $(RESULTS) and $(RECORD)"
	$(BIN)/python -m pytest --timeout 7200 --durations 20 --junitxml $(RESULTS) $(ARGS); \
		code=$$?; $(BIN)/python benchmarks/record_tests.py $(RESULTS) $(RECORD); exit $$code

lint: .venv/.dev
	@echo "drafttree: ruff and mypy"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel-check: .venv/.dev
	@echo "drafttree: building the wheel and running it outside the checkout"
	$(BIN)/python -m pytest tests/project/test_wheel.py $(ARGS)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp is written when an installation is complete. The mark .installing is there while one runs: found at the start,
# it belongs to one that was interrupted, and the environment is made anew.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "drafttree: Python 3.11 or newer is needed; try: make PYTHON=python3.12" >&2; exit 2; }
	@if [ -e .venv/.installing ]; then echo "drafttree: an installation was interrupted; starting it anew"; rm -rf .venv; fi
	@mkdir -p .venv && touch .venv/.installing
	@echo "drafttree: making the environment .venv (once)"
	@$(PYTHON) -m venv .venv
	@echo "drafttree: installing PyTorch into .venv"
	@$(BIN)/python -m pip install -c constraints.txt torch
	@echo "drafttree: installing drafttree[$(1)] and what it needs into .venv"
	@$(BIN)/python -m pip install -c constraints.txt \
		$$($(BIN)/python -c 'import torch; print("" if torch.version.cuda else "-c constraints-cpu.txt")') -e '.[$(1)]'
	@rm .venv/.installing && touch $@
endef

.venv/.demo: pyproject.toml constraints.txt constraints-cpu.txt
	$(call install,demo)

.venv/.dev: pyproject.toml constraints.txt constraints-cpu.txt
	$(call install,demo$(,)train$(,)bench$(,)dev)

, := ,
