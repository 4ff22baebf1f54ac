# Gristmill. `make help` lists what there is.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
RECIPE  ?= demo
WORKDIR ?= .
SOURCE  ?=
SET     ?=
GPUS    ?= 0
FLAGS   = $(if $(SOURCE),--source "$(SOURCE)") --recipe "$(RECIPE)" --workdir "$(WORKDIR)" $(foreach s,$(SET),--set "$(s)")
RUN     := $(if $(filter-out 0 1,$(GPUS)),$(BIN)/torchrun --standalone --nproc-per-node $(GPUS) -m train,$(BIN)/train)
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help curate train report test lint bench soak clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  variables     RECIPE=my.toml SOURCE=folder WORKDIR=place SET=key=value GPUS=8"

curate: $(VENV)/base ## Curate: RECIPE (default: the demo website) or SOURCE=path/to/folder
	@$(BIN)/curate run $(FLAGS)

train: $(VENV)/base ## Train on the shards that `make curate` left, export, and for the demo judge the pictures
	@$(RUN) run $(FLAGS)
	@$(BIN)/train export $(FLAGS)
ifeq ($(RECIPE)$(SOURCE),demo)
	@$(BIN)/train evaluate $(FLAGS)
	@$(BIN)/curate demo-judge "$(WORKDIR)/runs/demo/evaluation"
endif

report: $(VENV)/base ## Draw the HTML report of the run as it stands
	@$(BIN)/curate report $(FLAGS)

test: $(VENV)/test lint ## Lint, types and tests
	@$(BIN)/python -m pytest -n auto -m "not soak"

lint: $(VENV)/test ## Ruff and mypy
	@$(BIN)/ruff check pipeline train tests
	@$(BIN)/mypy

bench: $(VENV)/test ## Accuracy of the checks on the demo, speed of fetching, measuring and selecting, memory of long lists; see tests/README.md
	@$(BIN)/python tests/benchmarks/demo_seeds.py
	@$(BIN)/python tests/benchmarks/measure.py $(PHOTOGRAPHS) $(if $(OTHERS),--others "$(OTHERS)")
	@$(BIN)/python tests/benchmarks/columns.py
	@$(BIN)/python tests/benchmarks/duplicates.py
	@$(BIN)/python tests/benchmarks/weigh.py
	@$(BIN)/python tests/benchmarks/ingest.py $(if $(IMG2DATASET),--img2dataset "$(IMG2DATASET)")
	@$(BIN)/python tests/benchmarks/long_list.py
	@$(BIN)/python tests/benchmarks/blocklist.py

soak: $(VENV)/test ## The long tests: three demo seeds, kill -9 at many moments, damaged files, a whole training
	@$(BIN)/python -m pytest -m soak

clean: ## Remove the demo's manifests (tombstones too), bytes and training; keeps .venv and other runs
	@rm -rf "$(WORKDIR)/manifests/demo" "$(WORKDIR)/data/demo" "$(WORKDIR)/runs/demo"

$(VENV)/python-ready:
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/base: $(VENV)/python-ready pyproject.toml requirements.lock
	@echo "installing into $(VENV): about 6 GB and a few minutes, once"
	@$(PIP) -c requirements.lock torch torchvision
	@$(PIP) -c requirements.lock -e ".[fast]"
	@$(BIN)/python -c "from pipeline.measure import warm_up; warm_up()"
	@touch $@

$(VENV)/test: $(VENV)/base
	@$(PIP) -c requirements.lock -e ".[test]"
	@touch $@
