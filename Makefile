# `make help` lists what there is. Each target sets up what it needs; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2
MODELS ?= 5000
SEED ?= 0

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz docs browser lint types format bench wheel versions clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

$(VENV)/app.done: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once; a few minutes on a slow network)"
	$(INSTALL) -e '.[app]'
	@touch $@

$(VENV)/dev.done: $(VENV)/app.done
	$(INSTALL) -e '.[app,dev,skorch,lightning,transformers,trl,ray]'
	@touch $@

demo: $(VENV)/app.done ## the main job: noisy digits, plain against reweighed; writes demo/report.html
	$(BIN)/reweigh demo --out demo

test: lint types ## lint, types and the whole test suite
	$(BIN)/python -m pytest -n $(WORKERS)

fuzz: $(VENV)/dev.done ## MODELS=5000 random models against brute force, every back-end; SEED=0, WORKERS=2
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz.run --models $(MODELS) --seed $(SEED) \
	  --workers $(WORKERS) --out results/fuzz

docs: $(VENV)/dev.done ## the documentation, strict, into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

browser: ## Chromium for the tests of the review page, from Debian's archive, if we may
	@command -v chromium >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; \
	else echo "no chromium: the tests of the review page in a browser will be skipped"; fi

lint: $(VENV)/dev.done ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.done ## mypy, strict, on src
	$(BIN)/mypy

format: $(VENV)/dev.done ## rewrite the code the way `make lint` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/peers.done ## cost of every back-end, and of other libraries, as a ratio to a plain step
	$(BIN)/reweigh bench --peers --threads 1,2 --json results/performance/steps.json

wheel: $(VENV)/app.done ## build the wheel; try it in empty environments with torch and numpy, then with [app]
	$(BIN)/python scripts/check_wheel.py

versions: $(VENV)/app.done ## the tests of core on other releases of PyTorch and Python; downloads about 10 GB
	$(BIN)/python scripts/versions.py

# Betty's release has metadata that pip refuses since 24.1: an older one puts it in place.
$(VENV)/peers.done: $(VENV)/app.done
	$(INSTALL) -e '.[app,peers]'
	$(BIN)/python -m venv $(VENV)/older
	$(VENV)/older/bin/pip install -q 'pip<24.1'
	$(VENV)/older/bin/pip install -q --no-deps --target \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" betty-ml==0.1.1
	@touch $@

clean: ## remove what the other targets made
	rm -rf $(VENV) demo site build dist .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
