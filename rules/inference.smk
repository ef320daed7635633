# Inference: masks and answers of a model, trained here or published, for a split of the dataset and for one picture.


rule inference_run:
    input:
        model="results/training/{run}/model",
        lines=lambda wildcards: f"results/dataset/{RUNS[wildcards.run]['test']}/{wildcards.split}.jsonl",
        frames=lambda wildcards: DATA[RUNS[wildcards.run]["test"]]["frames"],
        pictures=lambda wildcards: DATA[RUNS[wildcards.run]["test"]]["pictures"],
    output:
        predictions="results/inference/{run}/{split}.jsonl",
        prediction_masks="results/inference/{run}/{split}.h5",
    log:
        "logs/inference/{run}/{split}.log",
    benchmark:
        "results/benchmarks/inference/{run}/{split}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, RUNS)),
        split="|".join(SPLITS),
    conda:
        "../envs/inference.yaml"
    threads: 2  # one reads pictures
    resources:
        gpu=lambda wildcards: GPU_OF[wildcards.run],
        mem_mb=megabytes(lambda wildcards: 16000 if GPU_OF[wildcards.run] else 4000 + 2 * MODEL_MB[wildcards.run]),
        runtime=minutes(lambda wildcards: 720 if GPU_OF[wildcards.run] else 120),
    params:
        options=lambda wildcards: OPTIONS["inference"] | RUNS[wildcards.run]["asking"],
        code=code_digest("inference.py", "ils.inference.stage"),
    script:
        "../scripts/inference.py"


# The same pairs, each asked in a wording of the persona (inference.paraphrases).
use rule inference_run as inference_paraphrased with:
    input:
        model="results/training/{run}/model",
        lines=lambda wildcards: f"results/dataset/{RUNS[wildcards.run]['test']}/{wildcards.split}.jsonl",
        frames=lambda wildcards: DATA[RUNS[wildcards.run]["test"]]["frames"],
        pictures=lambda wildcards: DATA[RUNS[wildcards.run]["test"]]["pictures"],
        wordings=lambda wildcards: wordings_of(RUNS[wildcards.run]["test"]),
    output:
        predictions="results/inference/{run}/{split}.{persona}.jsonl",
        prediction_masks="results/inference/{run}/{split}.{persona}.h5",
    log:
        "logs/inference/{run}/{split}.{persona}.log",
    benchmark:
        "results/benchmarks/inference/{run}/{split}.{persona}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, RUNS)),
        split="|".join(SPLITS),
        persona="|".join(SETTINGS.paraphrase.personas),
    params:
        options=lambda wildcards: OPTIONS["inference"] | RUNS[wildcards.run]["asking"] | {"persona": wildcards.persona},
        code=code_digest("inference.py", "ils.inference.stage"),


rule inference_panels:
    input:
        lines=lambda wildcards: f"results/dataset/{RUNS[wildcards.run]['test']}/{wildcards.split}.jsonl",
        index=lambda wildcards: f"results/masks/{RUNS[wildcards.run]['test']}/index.parquet",
        masks=lambda wildcards: expand(
            "results/masks/{thresholds}/{shard}.h5", thresholds=RUNS[wildcards.run]["test"], shard=SHARDS
        ),
        frames=expand("results/frames/{shard}.h5", shard=SHARDS),
        predictions="results/inference/{run}/{split}.jsonl",
        prediction_masks="results/inference/{run}/{split}.h5",
    output:
        panels=report(
            directory("results/inference/{run}/{split}_panels"),
            patterns=["{image}.jpg"],
            caption="../report/inference.rst",
            category="6 Evaluation",
            subcategory="{run}",
            labels={"image": "{image}"},
        ),
    log:
        "logs/inference/{run}/{split}.panels.log",
    benchmark:
        "results/benchmarks/inference/{run}/{split}.panels.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, RUNS)),
        split="|".join(SPLITS),
    group:
        "evaluation"
    conda:
        "../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(15),
    params:
        options=OPTIONS["figures"],
        code=code_digest("inference.py", "ils.inference.panels"),
    script:
        "../scripts/inference.py"


rule inference:
    input:
        predictions=expand("results/inference/{run}/{split}.jsonl", run=RUNS, split=SPLIT),
        reworded=expand("results/inference/{run}/{split}.{persona}.jsonl", run=RUNS, split=SPLIT, persona=PERSONAS),
        # sheets show frames, which a release does not have
        panels=expand(
            "results/inference/{run}/{split}_panels",
            run=[name for name, run in RUNS.items() if DATA[run["test"]]["frames"]],
            split=SPLIT,
        ),


# One picture: snakemake predict --config image=chest.dcm instruction='Segment the edema.' (or a list of instructions)
rule inference_predict:
    input:
        # nothing is trained for a question that was not asked
        model=lambda wildcards: f"results/training/{wildcards.run}/model" if PREDICT["image"] else [],
        image=PREDICT["image"] or [],
    output:
        output=directory("results/inference/{run}/predict/{image}"),
    log:
        "logs/inference/{run}/predict/{image}.log",
    benchmark:
        "results/benchmarks/inference/{run}/predict/{image}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, RUNS)),
        image="[^/]+",
    conda:
        "../envs/inference.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: GPU_OF[wildcards.run],
        mem_mb=megabytes(lambda wildcards: 16000 if GPU_OF[wildcards.run] else 4000 + 2 * MODEL_MB[wildcards.run]),
        runtime=minutes(60),
    params:
        instructions=PREDICT["instructions"],
        asking=lambda wildcards: OPTIONS["inference"] | RUNS[wildcards.run]["asking"],
        cohort=OPTIONS["cohort"],
        frames=OPTIONS["frames"],
        code=code_digest("predict.py"),
    script:
        "../scripts/predict.py"


rule predict:
    input:
        lambda wildcards: wanted(
            PREDICT["image"]
            and PREDICT["instructions"]
            and f"results/inference/{PREDICT['run']}/predict/{Path(PREDICT['image']).stem}",
            "predict wants --config image=chest.dcm instruction='Segment the edema.'",
        ),
