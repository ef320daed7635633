# Models without training, and other layouts of a trained one.


# A published model without training, which is asked and scored like a trained one.
rule training_untrained:
    input:
        unpack(lambda wildcards: PLAN.ils.starts[wildcards.run]),
    output:
        model=directory("results/training/{run}/model"),
    log:
        "logs/training/{run}.untrained.log",
    benchmark:
        "results/benchmarks/training/{run}.untrained.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.published)) or "$^",
    conda:
        "../../envs/training-rosalia.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(60),
    params:
        **job("ils.training.untrained.run_untrained"),
    message:
        "Published model {wildcards.run}, without training"
    script:
        "../../scripts/job.py"


# The base of the engine lite, which is part of this repository, without training.
rule training_base:
    output:
        model=directory("results/training/{run}/model"),
    log:
        "logs/training/{run}.base.log",
    benchmark:
        "results/benchmarks/training/{run}.base.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.bundled)) or "$^",
    conda:
        "../../envs/training-lite.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("ils.training.untrained.run_base"),
    message:
        "Base of the engine lite {wildcards.run}, without training"
    script:
        "../../scripts/job.py"


# The model in the layout of the published checkpoints, for code written for LISA: made by its path.
rule training_published:
    input:
        model="results/training/{run}/model",
        base=lambda wildcards: PLAN.ils.starts[wildcards.run].get("lisa", []),
    output:
        published=directory("results/training/{run}/published"),
    log:
        "logs/training/{run}.published.log",
    benchmark:
        "results/benchmarks/training/{run}.published.tsv"
    conda:
        "../../envs/inference.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(16000),
        runtime=minutes(60),
    params:
        **job("ils.training.export_lisa.run_published"),
    message:
        "Model {wildcards.run} in the layout of LISA"
    script:
        "../../scripts/job.py"


# SAM of the model in the layout of SAM's own file: made by its path.
rule training_sam:
    input:
        model="results/training/{run}/model",
    output:
        sam="results/training/{run}/sam.safetensors",
    log:
        "logs/training/{run}.sam.log",
    benchmark:
        "results/benchmarks/training/{run}.sam.tsv"
    conda:
        "../../envs/inference.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(20),
    params:
        **job("ils.training.export_lisa.run_sam"),
    message:
        "SAM of the model {wildcards.run} in its own layout"
    script:
        "../../scripts/job.py"
