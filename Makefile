# What one can do in a checkout; each target is one command. `make` lists them.
export WEIR_HOME ?= $(CURDIR)/.venv-test
export WEIR_LOCK ?= $(CURDIR)/requirements-test.lock
python = $(WEIR_HOME)/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test slow nightly format lint types imports docs site examples benchmarks figures disasters faults budget

help: ## list the targets
	@awk -F ': ## ' '/^[a-z]+: ## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## prepare the test environment in .venv-test (Python 3.11, Java 17)
	./spark-submit.sh --prepare

demo: ## process ten minutes of a fleet, write weir-demo/report.html
	env -u WEIR_HOME -u WEIR_LOCK ./spark-submit.sh demo

quick: ## style, types and the tests without Java and servers: before every commit
	./test.sh --quick

test: ## every test but the soaks: before every merge
	./test.sh

slow: ## every test on all traces, and the soaks
	./test.sh --slow

nightly: ## all of that on new random traces, and the seeded faults: tests/nightly.json
	./test.sh --nightly

format: ## format the code
	$(python) -m ruff format .

lint: ## check the code
	$(python) -m ruff check .

types: ## check the types
	$(python) -m mypy

imports: ## check who imports whom
	$(WEIR_HOME)/bin/lint-imports

docs: ## write the generated pages of docs/ and the rules for Prometheus
	$(python) -m tests.pages

site: ## build docs/ as a site with search in site/index.html, which needs no network
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict --quiet

examples: ## write the configurations of examples/ into the pages that show them
	$(python) -m tests.support.examples

benchmarks: ## measure: all benchmarks, one after the other, on an idle machine
	$(python) -m benchmarks

figures: ## write the results of benchmarks into docs/benchmarks.md
	$(python) -m benchmarks --table

disasters: ## kill, cut and damage runs at random for ten minutes
	$(python) -m tests.crash --minutes 10

faults: ## seed faults, one at a time: do the quick tests find each?
	$(python) -m tests.faults

budget: ## lower the bounds of budget.yaml to the statements that are there
	$(python) -m tests.budget
