# Tuning of vision-language models: one run per name in vlm.tuning.runs, on samples of any system.


rule vlm_tuning_run:
    input:
        lines=lambda wildcards: PLAN.vlm.runs[wildcards.run]["train"],
        pictures=lambda wildcards: PLAN.image_shards(PLAN.vlm.runs[wildcards.run]["system"]),
        base=lambda wildcards: PLAN.vlm.runs[wildcards.run]["base"],
        originals=lambda wildcards: PLAN.original_tables(wildcards.run),
        masks=lambda wildcards: PLAN.segmentation_masks(wildcards.run),
        sam=lambda wildcards: PLAN.vlm.runs[wildcards.run]["sam"],
    output:
        run=directory("results/vlm/{run}/weights"),
        updates="results/vlm/{run}/updates.tsv",
        left_out="results/vlm/{run}/left_out.parquet",
        conservation="results/vlm/{run}/conservation.tsv",
    log:
        "logs/vlm/tuning/{run}.log",
    benchmark:
        "results/benchmarks/vlm/tuning/{run}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.trained)) or "$^",
    conda:
        f"../../envs/{PLAN.vlm.environment}.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.vlm.gpus[wildcards.run],
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(
            lambda wildcards: 16000 + 40000 * PLAN.vlm.gpus[wildcards.run] if PLAN.vlm.gpus[wildcards.run] else 4000
        ),
        runtime=minutes(lambda wildcards: 1440 if PLAN.vlm.gpus[wildcards.run] else 240),
        # the job writes a checkpoint when SLURM warns it, and the next try resumes from there
        slurm_extra=warning_options(default_resources(workflow), PLAN.settings.compute.time_to_stop),
    params:
        **job(
            "vlm.tuning.tune.run_tuning",
            *PLAN.vlm.tuning_modules,
        ),
        options=lambda wildcards: PLAN.vlm.runs[wildcards.run]["options"],
        folders=lambda wildcards: PLAN.image_folders(PLAN.vlm.runs[wildcards.run]["system"]),
    message:
        "Tuning of the vision-language model {wildcards.run}"
    script:
        "../../scripts/job.py"


# An untrained model. Its convention of box coordinates is declared, or found by questions about validation samples.
rule vlm_tuning_untrained:
    input:
        lines=lambda wildcards: PLAN.vlm.runs[wildcards.run]["validate"],
        pictures=lambda wildcards: PLAN.image_shards(PLAN.vlm.runs[wildcards.run]["system"]),
        base=lambda wildcards: PLAN.vlm.runs[wildcards.run]["base"],
    output:
        run=directory("results/vlm/{run}/weights"),
        probed="results/vlm/{run}/probed.tsv",
    log:
        "logs/vlm/tuning/{run}.untrained.log",
    benchmark:
        "results/benchmarks/vlm/tuning/{run}.untrained.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.untrained)) or "$^",
    conda:
        "../../envs/vlm_tuning.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.vlm.answer_gpus[wildcards.run],
        mem_mb=megabytes(32000),
        runtime=minutes(120),
    params:
        **job("vlm.tuning.untrained.run_untrained", *PLAN.vlm.families, "vlm.answers.transformers"),
        options=lambda wildcards: PLAN.vlm.runs[wildcards.run]["options"],
    message:
        "Vision-language model {wildcards.run}, without training"
    script:
        "../../scripts/job.py"


rule vlm_tuning:
    input:
        expand("results/vlm/{run}/weights", run=PLAN.vlm.runs),
