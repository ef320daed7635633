# Training: ROSALIA fine-tuned on the dataset of a threshold set, or a published model, one for each name in training.runs.


rule training_run:
    input:
        unpack(lambda wildcards: STARTS[wildcards.run]),
        train=lambda wildcards: RUNS[wildcards.run]["train"],
        validate=lambda wildcards: f"results/dataset/{RUNS[wildcards.run]['thresholds']}/validate.jsonl",
        index=lambda wildcards: DATA[RUNS[wildcards.run]["thresholds"]]["index"],
        masks=lambda wildcards: DATA[RUNS[wildcards.run]["thresholds"]]["masks"],
        frames=lambda wildcards: DATA[RUNS[wildcards.run]["thresholds"]]["frames"],
        pictures=lambda wildcards: DATA[RUNS[wildcards.run]["thresholds"]]["pictures"],
        wordings=lambda wildcards: RUNS[wildcards.run]["wordings"],
    output:
        model=directory("results/training/{run}/model"),
        updates="results/training/{run}/updates.tsv",
        epochs="results/training/{run}/epochs.tsv",
        tensorboard=directory("results/training/{run}/tensorboard"),
    log:
        "logs/training/{run}.log",
    benchmark:
        "results/benchmarks/training/{run}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, TRAINED)) or "$^",
    conda:
        f"../envs/training-{OPTIONS['training']['engine']}.yaml"
    threads: max(8, 4 * GPUS["training"]) if GPUS["training"] else 1  # all but one of each process read pairs
    resources:
        gpu=GPUS["training"],
        nodes=1,  # else SLURM may take the GPUs of two
        # each process and its readers, and the checkpoint; the model itself is in the memory of the GPUs
        mem_mb=megabytes(16000 + 12000 * GPUS["training"] if GPUS["training"] else 8000 + 4 * MODEL_MB["training"]),
        runtime=minutes(4320 if GPUS["training"] else 240),  # the paper's run took 2.5 days on two H100
        # it then writes down how far it is, and the next try goes on there
        slurm_extra=warned(workflow.resource_settings.default_resources, SETTINGS.compute.time_to_stop),
    params:
        options=OPTIONS["training"],
        code=code_digest(
            "training.py",
            "ils.training.stage",
            f"ils.training.{OPTIONS['training']['engine']}",
            f"ils.training.{OPTIONS['training']['own']['runner']}",
        ),
    script:
        "../scripts/training.py"


# A published model as it is, which is asked and scored like a trained one.
rule training_untrained:
    input:
        unpack(lambda wildcards: STARTS[wildcards.run]),
    output:
        model=directory("results/training/{run}/model"),
    log:
        "logs/training/{run}.untrained.log",
    benchmark:
        "results/benchmarks/training/{run}.untrained.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PUBLISHED)) or "$^",
    conda:
        "../envs/training-rosalia.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(60),
    params:
        code=code_digest("training.py", "ils.training.untrained"),
    script:
        "../scripts/training.py"


rule training_curves:
    input:
        updates="results/training/{run}/updates.tsv",
        epochs="results/training/{run}/epochs.tsv",
    output:
        figure=report(
            "results/training/{run}/curves.png",
            caption="../report/training.rst",
            category="6 Evaluation",
            labels={"training": "{run}"},
        ),
    log:
        "logs/training/{run}.curves.log",
    benchmark:
        "results/benchmarks/training/{run}.curves.tsv"
    group:
        "evaluation"
    conda:
        "../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        code=code_digest("training.py", "ils.training.curves"),
    script:
        "../scripts/training.py"


# The model in the layout of the published checkpoints, for code that was written for LISA: asked for by its path.
rule training_published:
    input:
        model="results/training/{run}/model",
        base=lambda wildcards: STARTS[wildcards.run].get("lisa", []),
    output:
        published=directory("results/training/{run}/published"),
    log:
        "logs/training/{run}.published.log",
    benchmark:
        "results/benchmarks/training/{run}.published.tsv"
    conda:
        "../envs/inference.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(16000),
        runtime=minutes(60),
    params:
        code=code_digest("training.py", "ils.training.published"),
    script:
        "../scripts/training.py"


# SAM of the model in the layout of SAM's own file: asked for by its path.
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
        "../envs/inference.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(20),
    params:
        code=code_digest("training.py", "ils.training.published"),
    script:
        "../scripts/training.py"


rule training:
    input:
        models=expand("results/training/{run}/model", run=RUNS),
        curves=expand("results/training/{run}/curves.png", run=TRAINED),
