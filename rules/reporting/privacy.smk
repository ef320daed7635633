# Privacy: numbers of identifiers that were removed from texts and images.


rule privacy_table:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
        corrected=expand("results/frames/{shard}.corrected.parquet", shard=PLAN.shards),
    output:
        table=report(
            "results/tables/privacy.tsv",
            caption="../../report/privacy.rst",
            category="1 From images to pairs",
            labels={"result": "identifiers removed"},
        ),
    log:
        "logs/privacy/table.log",
    benchmark:
        "results/benchmarks/privacy/table.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(20),
    params:
        **job("reporting.privacy.run"),
    message:
        "Privacy: identifiers removed, by place and kind"
    script:
        "../../scripts/job.py"


rule privacy:
    input:
        rules.privacy_table.output,
