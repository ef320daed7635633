# Reports: section, sentences, findings with place and certainty.


rule reports_shard:
    input:
        cohort="results/cohort/{shard}.parquet",
    output:
        output="results/reports/{shard}.jsonl",
        excluded="results/reports/{shard}.excluded.parquet",
    log:
        "logs/reports/{shard}.log",
    benchmark:
        "results/benchmarks/reports/{shard}.tsv"
    conda:
        f"../envs/reports-{OPTIONS['reports']['engine']}.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        **OPTIONS["reports"],
        code=code_digest("reports.py", f"ils.reports.{OPTIONS['reports']['engine']}"),
    script:
        "../scripts/reports.py"


rule reports:
    input:
        shards=expand("results/reports/{shard}.jsonl", shard=SHARDS),
        excluded=expand("results/reports/{shard}.excluded.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
    output:
        excluded="results/reports/excluded.parquet",
    log:
        "logs/reports/gather.log",
    benchmark:
        "results/benchmarks/reports/gather.tsv"
    conda:
        "../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=20,
    params:
        code=code_digest("gather.py"),
    script:
        "../scripts/gather.py"
