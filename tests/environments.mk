# Suites in environments of their own, because their packages conflict with those of the tests, and suites of a cluster:
# part of the Makefile, and of `make test-all`.
#
# make vllm              the path of the language models with vLLM on the CPU and a small model that is trained on the spot (15 min)
# make test-cxas         the engine cxas, with the published class (docs/how-to/models.md)
# make test-ultralytics  the engines ultralytics (AGPL)
# make test-deepspeed    training in several processes on the CPU (it compiles for two minutes first)
# make test-scispacy     the engine scispacy, with pipelines and a linker made there
# make test-radgraph     RadGraph, with a model of random weights made there
# make test-slurm        the workflow on a cluster, with jobs that fail; make test-faults: every other fault (docs/how-to/cluster.md)

.PHONY: vllm vllm-text vllm-images test-cxas test-ultralytics test-deepspeed test-scispacy test-radgraph test-slurm test-faults

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

test-slurm: test-setup
	$(BIN)/pytest tests/workflow/test_slurm.py

test-faults: test-setup
	CXR_ILS_FAULTS=1 $(BIN)/pytest tests/workflow/test_slurm.py tests/workflow/test_faults.py tests/ils/test_training_slurm.py tests/vlm/test_vlm_slurm.py
