# MedGround's dataset: the verified queries of all sources, with baselines, pairs and the proof that nothing was lost.


rule medground_dataset_lines:
    input:
        sources=PLAN.medground.parts("sources", "h5"),
        images=PLAN.medground.of_sources("sources", "images.parquet"),
        regions=PLAN.medground.parts("regions", "parquet"),
        dropped=PLAN.medground.parts("regions", "dropped.parquet"),
        without=PLAN.medground.parts("regions", "excluded.parquet"),
        queries=PLAN.medground.parts("queries", "jsonl"),
        unasked=PLAN.medground.parts("queries", "unasked.parquet"),
        accepted=PLAN.medground.parts("verification", "jsonl"),
        rejected=PLAN.medground.parts("verification", "rejected.parquet"),
    output:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
        labels=expand(
            "results/medground/dataset/label_{kind}/{split}.jsonl",
            kind=PLAN.medground.options["dataset"]["labels"],
            split=PLAN.splits,
        ),
        sensitivity="results/medground/dataset/pairs.jsonl",
        units="results/medground/dataset/units.parquet",
        statistics="results/medground/dataset/statistics.tsv",
        counts="results/medground/dataset/conservation.tsv",
    log:
        "logs/medground/dataset/lines.log",
    benchmark:
        "results/benchmarks/medground/dataset/lines.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("medground.dataset.make_dataset.run"),
        options=PLAN.medground.options["dataset"],
    message:
        "MedGround: the dataset"
    script:
        "../../scripts/job.py"


rule medground_dataset:
    input:
        rules.medground_dataset_lines.output,
        "results/medground/verification/passrate.tsv",
        PLAN.medground.unused,
