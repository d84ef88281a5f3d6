# Two commands matter: `make run` and `make test`. `make` alone lists them all.
# Knobs are environment variables: PORT=8100 make run (README.md has the table).

.DEFAULT_GOAL := help
.PHONY: help run dev restart manage setup setup-dev vllm test test-vllm test-long lint clean

# Only used to make the virtual environment; see scripts/find-python.
PYTHON ?=
export PYTHON
# `make run ENGINE=vllm MODEL=…` says the same as `ENGINE=vllm MODEL=… make run`.
export ENGINE MODEL
PY := .venv/bin/python
# mypy's Django plugin loads the settings; it connects to nothing.
NOWHERE := SECRET_KEY=lint DATABASE_URL=postgres://127.0.0.1:1/none REDIS_URL=redis://127.0.0.1:1/0

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

run: setup vllm  ## Everything on this machine; Ctrl-C ends it, the data stays in var/
	@$(PY) -m chatproject.run

dev: setup-dev vllm  ## As run, for developers: restarts when the source changes, shows debug pages
	@$(PY) -m chatproject.run --reload

restart: setup  ## Restarts what `make run` started, one process after the other: no answer is cut
	@$(PY) -m chatproject.run --restart

manage:  ## manage.py against what is running: make manage ARGS="create_api_token admin@localhost --name laptop"
	@$(PY) -m chatproject.run --manage $(ARGS)

setup:  ## What run needs: .venv and node_modules (nothing to do when nothing has changed)
	@python=$$(sh scripts/find-python) && "$$python" scripts/bootstrap.py

setup-dev:
	@python=$$(sh scripts/find-python) && "$$python" scripts/bootstrap.py --dev

# Only where it is asked for: ENGINE=vllm.
vllm: setup
	@if [ "$$ENGINE" = vllm ]; then $(PY) scripts/vllm_env.py; fi

test: setup-dev  ## All tests; the last one is a journey through `make run` with the demo model
	@bash scripts/run-tests

test-vllm: setup-dev  ## The whole product on the real vLLM, its CPU build (minutes; installed into the cache)
	@bash scripts/run-vllm-tests

test-long: setup-dev  ## An engine silent for 130 s twice, behind nginx with its default time-outs
	@$(PY) -m pytest -s -m long tests/faults/test_long_silence.py

lint: setup-dev  ## Style, types, and which module may import which
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(NOWHERE) $(PY) -m mypy .
	@.venv/bin/lint-imports

clean:  ## Removes what can be made again; the data in var/ stays
	@rm -rf .venv .venv-vllm node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +
	@echo "The database, the model and the keys are still in var/: remove it yourself to start anew."
