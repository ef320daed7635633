# Inference: masks and answers of a trained or published model, for a split of the dataset or for one image.


rule inference_run:
    input:
        model="results/training/{run}/model",
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.runs[wildcards.run]['test']}/{wildcards.split}.jsonl",
        frames=lambda wildcards: PLAN.ils.data[PLAN.ils.runs[wildcards.run]["test"]]["frames"],
        pictures=lambda wildcards: PLAN.ils.data[PLAN.ils.runs[wildcards.run]["test"]]["pictures"],
    output:
        predictions="results/inference/{run}/{split}.jsonl",
        prediction_masks="results/inference/{run}/{split}.h5",
    log:
        "logs/inference/{run}/{split}.log",
    benchmark:
        "results/benchmarks/inference/{run}/{split}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.runs)),
        split="|".join(PLAN.splits),
    conda:
        "../../envs/inference.yaml"
    threads: 2  # one thread reads images
    resources:
        gpu=lambda wildcards: PLAN.ils.gpus[wildcards.run],
        mem_mb=megabytes(
            lambda wildcards: 16000 if PLAN.ils.gpus[wildcards.run] else 4000 + 2 * PLAN.ils.model_mb[wildcards.run]
        ),
        runtime=minutes(lambda wildcards: 720 if PLAN.ils.gpus[wildcards.run] else 120),
    params:
        **job("ils.inference.infer.run_split"),
        options=lambda wildcards: PLAN.options["inference"] | PLAN.ils.runs[wildcards.run]["asking"],
    message:
        "Answers and masks of {wildcards.run} for the split {wildcards.split}"
    script:
        "../../scripts/job.py"


# The same pairs, with each instruction in the wording of a persona (inference.paraphrases).
use rule inference_run as inference_paraphrased with:
    input:
        model="results/training/{run}/model",
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.runs[wildcards.run]['test']}/{wildcards.split}.jsonl",
        frames=lambda wildcards: PLAN.ils.data[PLAN.ils.runs[wildcards.run]["test"]]["frames"],
        pictures=lambda wildcards: PLAN.ils.data[PLAN.ils.runs[wildcards.run]["test"]]["pictures"],
        wordings=lambda wildcards: f"results/paraphrase/{PLAN.ils.runs[wildcards.run]['test']}/wordings.jsonl",
    output:
        predictions="results/inference/{run}/{split}.{persona}.jsonl",
        prediction_masks="results/inference/{run}/{split}.{persona}.h5",
    log:
        "logs/inference/{run}/{split}.{persona}.log",
    benchmark:
        "results/benchmarks/inference/{run}/{split}.{persona}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.runs)),
        split="|".join(PLAN.splits),
        persona="|".join(PLAN.settings.paraphrase.personas),
    params:
        options=lambda wildcards: PLAN.options["inference"]
        | PLAN.ils.runs[wildcards.run]["asking"]
        | {"persona": wildcards.persona},
    message:
        "Answers and masks of {wildcards.run} for the split {wildcards.split}, in the words of {wildcards.persona}"


rule inference_panels:
    input:
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.runs[wildcards.run]['test']}/{wildcards.split}.jsonl",
        masks=lambda wildcards: expand(
            "results/masks/{thresholds}/{shard}.h5", thresholds=PLAN.ils.runs[wildcards.run]["test"], shard=PLAN.shards
        ),
        frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
        predictions="results/inference/{run}/{split}.jsonl",
        prediction_masks="results/inference/{run}/{split}.h5",
    output:
        panels=report(
            directory("results/inference/{run}/{split}_panels"),
            patterns=["{image}.jpg"],
            caption="../../report/inference.rst",
            category="6 Evaluation",
            subcategory="{run}",
            labels={"image": "{image}"},
        ),
    log:
        "logs/inference/{run}/{split}.panels.log",
    benchmark:
        "results/benchmarks/inference/{run}/{split}.panels.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.runs)),
        split="|".join(PLAN.splits),
    group:
        "evaluation"
    conda:
        "../../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(15),
    params:
        **job("ils.inference.panels.run_panels"),
        **PLAN.options["figures"],
        seed=PLAN.settings.seed,
    message:
        "Panels of the answers of {wildcards.run} for the split {wildcards.split}"
    script:
        "../../scripts/job.py"


rule inference:
    input:
        predictions=expand("results/inference/{run}/{split}.jsonl", run=PLAN.ils.runs, split=PLAN.ils.split),
        reworded=expand(
            "results/inference/{run}/{split}.{persona}.jsonl",
            run=PLAN.ils.runs,
            split=PLAN.ils.split,
            persona=PLAN.ils.personas,
        ),
        # panels need frames, which an imported dataset does not have
        panels=expand(
            "results/inference/{run}/{split}_panels",
            run=[name for name, run in PLAN.ils.runs.items() if PLAN.ils.data[run["test"]]["frames"]],
            split=PLAN.ils.split,
        ),


# For one image: snakemake predict --config image=chest.dcm instruction='Segment the edema.' (or a list of instructions)
rule inference_predict:
    input:
        # without an image in --config there is no input, so that nothing is trained
        model=lambda wildcards: f"results/training/{wildcards.run}/model" if PLAN.ils.request["image"] else [],
        image=PLAN.ils.request["image"] or [],
    output:
        output=directory("results/inference/{run}/predict/{image}"),
    log:
        "logs/inference/{run}/predict/{image}.log",
    benchmark:
        "results/benchmarks/inference/{run}/predict/{image}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.runs)),
        image="[^/]+",
    conda:
        "../../envs/inference.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: PLAN.ils.gpus[wildcards.run],
        mem_mb=megabytes(
            lambda wildcards: 16000 if PLAN.ils.gpus[wildcards.run] else 4000 + 2 * PLAN.ils.model_mb[wildcards.run]
        ),
        runtime=minutes(60),
    params:
        **job("ils.inference.predict.run"),
        instructions=PLAN.ils.request["instructions"],
        asking=lambda wildcards: PLAN.options["inference"] | PLAN.ils.runs[wildcards.run]["asking"],
        cohort=PLAN.options["cohort"],
        frames=PLAN.options["frames"],
    message:
        "Answers of {wildcards.run} about {wildcards.image}"
    script:
        "../../scripts/job.py"


rule predict:
    input:
        lambda wildcards: wanted(
            PLAN.ils.request["image"]
            and PLAN.ils.request["instructions"]
            and PLAN.ils.request["run"]
            and f"results/inference/{PLAN.ils.request['run']}/predict/{Path(PLAN.ils.request['image']).stem}",
            "predict needs --config image=chest.dcm instruction='Segment the edema.', and a run of training.runs",
        ),
