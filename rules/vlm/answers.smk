# Answers of vision-language models to the questions of vlm.answers.sets.


# Draw of the samples that models are asked (vlm.answers.most). Rules that read answers to a set also read this file.
rule vlm_answers_draw:
    input:
        lines=lambda wildcards: PLAN.vlm.all_lines[wildcards.set],
        among=lambda wildcards: PLAN.vlm.shared_draw_lines(wildcards.set),
    output:
        selection="results/vlm/sets/{set}.jsonl",
        counts="results/vlm/sets/{set}.tsv",
    log:
        "logs/vlm/answers/{set}.draw.log",
    benchmark:
        "results/benchmarks/vlm/answers/{set}.draw.tsv"
    wildcard_constraints:
        set="|".join(map(re.escape, PLAN.vlm.drawn_sets)) or "$^",
    localrule: True
    conda:
        "../../envs/vlm_answers-transformers.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("vlm.answers.selection.run"),
        most=PLAN.vlm.most,
    message:
        "Selection of the samples of {wildcards.set} that are asked"
    script:
        "../../scripts/job.py"


rule vlm_answers_run:
    input:
        lines=lambda wildcards: PLAN.vlm.sets[wildcards.set],
        pictures=lambda wildcards: PLAN.image_shards(PLAN.vlm.systems[wildcards.set]),
        run="results/vlm/{run}/weights",
        base=lambda wildcards: PLAN.vlm.runs[wildcards.run]["base"],
        originals=lambda wildcards: PLAN.original_tables(wildcards.run),
    output:
        answers="results/vlm/{run}/answers/{set}.jsonl",
    log:
        "logs/vlm/answers/{run}/{set}.log",
    benchmark:
        "results/benchmarks/vlm/answers/{run}/{set}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.without_head)) or "$^",
        set="|".join(map(re.escape, PLAN.vlm.sets)) or "$^",
    conda:
        f"../../envs/vlm_answers-{PLAN.vlm.engine}.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.vlm.answer_gpus[wildcards.run],
        mem_mb=megabytes(lambda wildcards: 32000 if PLAN.vlm.answer_gpus[wildcards.run] else 4000),
        runtime=minutes(lambda wildcards: 720 if PLAN.vlm.answer_gpus[wildcards.run] else 120),
    params:
        **job("vlm.answers.ask.run_answers", *PLAN.vlm.families, f"vlm.answers.{PLAN.vlm.engine}"),
        options=lambda wildcards: PLAN.vlm.answer_options[wildcards.run],
        folders=lambda wildcards: PLAN.image_folders(PLAN.vlm.systems[wildcards.set]),
    message:
        "Answers of {wildcards.run} to {wildcards.set}"
    script:
        "../../scripts/job.py"


# Answers of a run with a segmentation head, and a mask for each [SEG] in them.
use rule vlm_answers_run as vlm_answers_run_masks with:
    output:
        answers="results/vlm/{run}/answers/{set}.jsonl",
        masks="results/vlm/{run}/answers/{set}.h5",
    log:
        "logs/vlm/answers/{run}/{set}.masks.log",
    benchmark:
        "results/benchmarks/vlm/answers/{run}/{set}.masks.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.with_head)) or "$^",
        set="|".join(map(re.escape, PLAN.vlm.sets)) or "$^",
    message:
        "Answers and masks of {wildcards.run} to {wildcards.set}"


# Answers of an external model, which the user provides (vlm.answers.predictions).
rule vlm_answers_read:
    input:
        lines=lambda wildcards: PLAN.vlm.sets[wildcards.set],
        pictures=lambda wildcards: PLAN.image_shards(PLAN.vlm.systems[wildcards.set]),
        base=lambda wildcards: PLAN.vlm.predictions[wildcards.run],
    output:
        answers="results/vlm/{run}/answers/{set}.jsonl",
        unused="results/vlm/{run}/answers/{set}.unused.parquet",
    log:
        "logs/vlm/answers/{run}/{set}.read.log",
    benchmark:
        "results/benchmarks/vlm/answers/{run}/{set}.read.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.predictions)) or "$^",
        set="|".join(map(re.escape, PLAN.vlm.sets)) or "$^",
    conda:
        "../../envs/vlm_answers-transformers.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("vlm.answers.table.run_external"),
        options=lambda wildcards: PLAN.vlm.answer_options[wildcards.run],
        folders=lambda wildcards: PLAN.image_folders(PLAN.vlm.systems[wildcards.set]),
    message:
        "External answers of {wildcards.run} to {wildcards.set}"
    script:
        "../../scripts/job.py"


rule vlm_answers:
    input:
        [f"results/vlm/{run}/answers/{name}.jsonl" for run, names in PLAN.vlm.sets_by_run.items() for name in names],


# For one image: snakemake vlm_ask --config image=chest.dcm questions='["What is abnormal?", "Where is it?"]' run=radvlm
rule vlm_answers_image:
    input:
        # without an image in --config there is no input, so that nothing is tuned
        run=lambda wildcards: f"results/vlm/{wildcards.run}/weights" if PLAN.vlm_request["image"] else [],
        base=lambda wildcards: PLAN.vlm.runs[wildcards.run]["base"],
        image=PLAN.vlm_request["image"] or [],
    output:
        output=directory("results/vlm/{run}/asked/{image}"),
    log:
        "logs/vlm/answers/{run}/asked/{image}.log",
    benchmark:
        "results/benchmarks/vlm/answers/{run}/asked/{image}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.vlm.runs)) or "$^",
        image="[^/]+",
    conda:
        "../../envs/vlm_answers-image.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.vlm.answer_gpus[wildcards.run],
        mem_mb=megabytes(lambda wildcards: 32000 if PLAN.vlm.answer_gpus[wildcards.run] else 4000),
        runtime=minutes(60),
    params:
        **job("vlm.answers.one_image.run_image", *PLAN.vlm.families, "vlm.answers.transformers"),
        questions=PLAN.vlm_request["questions"],
        referring=PLAN.vlm_request["referring"],
        asking=lambda wildcards: PLAN.vlm.answer_options[wildcards.run] | {"engine": "transformers"},
        cohort=PLAN.options["cohort"],
        frames=PLAN.options["frames"],
        quality=JPEG_QUALITY,
    message:
        "Answers of {wildcards.run} about {wildcards.image}"
    script:
        "../../scripts/job.py"


rule vlm_ask:
    input:
        lambda wildcards: wanted(
            PLAN.vlm_request["image"] and PLAN.vlm_request["questions"] and PLAN.vlm_request["run"]
            # the output with masks, if ROSALIA draws them
            and "results/{system}/{run}/asked/{image}".format(
                system="radvlm/evaluation" if PLAN.vlm_request["run"] in PLAN.segmentation.image_runs else "vlm",
                run=PLAN.vlm_request["run"],
                image=Path(PLAN.vlm_request["image"]).stem,
            ),
            "vlm_ask needs --config image=chest.dcm questions='[\"What is abnormal?\"]', and a run of vlm.tuning.runs",
        ),
