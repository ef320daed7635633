# Clinical concepts of MedGround's queries, where another engine than the lexicon counts them.


rule medground_dataset_entities:
    input:
        lines=expand("results/medground/dataset/{split}.jsonl", split=[*PLAN.splits, "zero_shot"]),
        labels=rules.medground_dataset_lines.output.labels,
        model=PLAN.medground.entities,
    output:
        entities="results/medground/dataset/entities.parquet",
    log:
        "logs/medground/dataset/entities.log",
    benchmark:
        "results/benchmarks/medground/dataset/entities.tsv"
    conda:
        "../../envs/medground_dataset-scispacy.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(16000),  # the linker of UMLS holds three million names
        runtime=minutes(120),
    params:
        **job("medground.dataset.scispacy_entities.run"),
        options=PLAN.medground.options["entities"],
    message:
        "MedGround: clinical concepts of the queries"
    script:
        "../../scripts/job.py"
