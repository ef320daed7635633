# Training: ROSALIA fine-tuned on a dataset, or a published model. There is one model per name in training.runs.


rule training_run:
    input:
        unpack(lambda wildcards: PLAN.ils.starts[wildcards.run]),
        train=lambda wildcards: PLAN.ils.runs[wildcards.run]["train"],
        validate=lambda wildcards: f"results/dataset/{PLAN.ils.runs[wildcards.run]['thresholds']}/validate.jsonl",
        masks=lambda wildcards: PLAN.ils.data[PLAN.ils.runs[wildcards.run]["thresholds"]]["masks"],
        frames=lambda wildcards: PLAN.ils.data[PLAN.ils.runs[wildcards.run]["thresholds"]]["frames"],
        pictures=lambda wildcards: PLAN.ils.data[PLAN.ils.runs[wildcards.run]["thresholds"]]["pictures"],
        wordings=lambda wildcards: PLAN.ils.runs[wildcards.run]["wordings"],
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
        run="|".join(map(re.escape, PLAN.ils.trained)) or "$^",
    conda:
        PLAN.environments["training"]
    threads: max(8, 4 * PLAN.gpus["training"]) if PLAN.gpus["training"] else 1  # one computes, other threads read pairs
    resources:
        gpu=PLAN.gpus["training"],
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        # memory of each process, its readers and the checkpoint, as the model is in the memory of the GPUs
        mem_mb=megabytes(
            16000 + 12000 * PLAN.gpus["training"]
            if PLAN.gpus["training"]
            else 8000 + 4 * PLAN.ils.model_mb["training"]
        ),
        runtime=minutes(4320 if PLAN.gpus["training"] else 240),  # the paper's training took 2.5 days on two H100
        # the job writes a checkpoint when SLURM warns it, and the next try resumes from there
        slurm_extra=warning_options(default_resources(workflow), PLAN.settings.compute.time_to_stop),
    params:
        **job(
            "ils.training.train.run_training",
            f"ils.training.{PLAN.engines['training']}",
            f"nets.fitting.{PLAN.options['training'][PLAN.engines['training']]['runner']}",
        ),
        options=PLAN.options["training"],
    message:
        "Training of {wildcards.run}"
    script:
        "../../scripts/job.py"


rule training_curves:
    input:
        updates="results/training/{run}/updates.tsv",
        epochs="results/training/{run}/epochs.tsv",
    output:
        figure=report(
            "results/training/{run}/curves.png",
            caption="../../report/training.rst",
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
        "../../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("ils.training.curves.run_curves"),
    message:
        "Curves of the training {wildcards.run}"
    script:
        "../../scripts/job.py"


rule training:
    input:
        models=expand("results/training/{run}/model", run=PLAN.ils.runs),
        curves=expand("results/training/{run}/curves.png", run=PLAN.ils.trained),


# A published model without training, used and scored like a trained model.
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
        **job("ils.training.rosalia.run_untrained"),
    message:
        "Published model {wildcards.run}, without training"
    script:
        "../../scripts/job.py"


# The base model of the engine lite, which is in this repository, without training.
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
        **job("ils.rosalia.lite.run_base"),
    message:
        "Base model of the engine lite as {wildcards.run}, without training"
    script:
        "../../scripts/job.py"


# The model in the layout of the published checkpoints, for code written for LISA. It is made by its path.
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
        **job("ils.training.rosalia.run_published"),
    message:
        "Model {wildcards.run} in the layout of LISA"
    script:
        "../../scripts/job.py"


# The SAM part of the model in the layout of SAM's published file. It is made by its path.
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
        **job("ils.rosalia.convert.to_sam"),
    message:
        "SAM part of the model {wildcards.run} in the layout of SAM"
    script:
        "../../scripts/job.py"
