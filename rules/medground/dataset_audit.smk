# What experts see of each query of MedGround's test split; the pages are the stage review's. The target of the system.


rule medground_dataset_units:
    input:
        lines="results/medground/dataset/test.jsonl",
        images=PLAN.medground.of_sources("sources", "images.parquet"),
        regions=PLAN.medground.parts("regions", "parquet"),
        sources=PLAN.medground.parts("sources", "h5"),
    output:
        shown=temp("results/medground/dataset/shown.parquet"),
    log:
        "logs/medground/dataset/units.log",
    benchmark:
        "results/benchmarks/medground/dataset/units.tsv"
    conda:
        "../../envs/review.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("medground.dataset.audit_units.run"),
        options=PLAN.medground.options["audit_units"],
    message:
        "MedGround: queries and images for the experts"
    script:
        "../../scripts/job.py"


rule medground:
    input:
        rules.medground_dataset.input,
