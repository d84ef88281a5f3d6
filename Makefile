# Two commands matter: `make run` and `make test`. `make` alone lists them all.
# Knobs are environment variables: PORT=8100 make run (README.md has the table).

.DEFAULT_GOAL := help
.PHONY: help run dev manage setup setup-dev test lint clean

# Only used to make the virtual environment; see scripts/find-python.
PYTHON ?=
export PYTHON
PY := .venv/bin/python
lint: setup-dev  ## Style, types, and which module may import which
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(NOWHERE) $(PY) -m mypy .
	@.venv/bin/lint-imports

clean:  ## Removes what can be made again; the data in var/ stays
	@rm -rf .venv node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +
	@echo "The database, the model and the keys are still in var/: remove it yourself to start anew."
