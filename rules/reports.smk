# Reports: section, sentences, findings with place and certainty.


rule reports_shard:
    input:
        **ENGINE_FILES["reports"],
        cohort="results/cohort/{shard}.parquet",
    output:
        output="results/reports/{shard}.jsonl",
        excluded="results/reports/{shard}.excluded.parquet",
    log:
        "logs/reports/{shard}.log",
    benchmark:
        "results/benchmarks/reports/{shard}.tsv"
    group:
        "reports"
    conda:
        "../envs/reports.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(5),
    params:
        options=OPTIONS["reports"],
        code=code_digest("reports.py", "ils.reports.stage", f"ils.reports.{OPTIONS['reports']['engine']}"),
    script:
        "../scripts/reports.py"


# How far the rules engine agrees with the engine in use, and every study where it does not.
rule reports_agreement:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=SHARDS),
    output:
        agreement=report(
            "results/reports/agreement.tsv",
            caption="../report/agreement.rst",
            category="1 From images to pairs",
            labels={"table": "agreement of the report engines"},
        ),
        disagreements="results/reports/disagreements.tsv",
    log:
        "logs/reports/agreement.log",
    benchmark:
        "results/benchmarks/reports/agreement.tsv"
    conda:
        "../envs/reports.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(20),
    params:
        effusion_without_side=OPTIONS["reports"]["effusion_without_side"],
        code=code_digest("reports.py", "ils.reports.agreement"),
    script:
        "../scripts/reports.py"


# What the studies' reports gave and why some gave nothing, and the words that were not understood; said on the screen too.
rule reports_read:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=SHARDS),
        excluded=expand("results/reports/{shard}.excluded.parquet", shard=SHARDS),
    output:
        words="results/reports/unknown_words.tsv",
        reading="results/reports/reading.tsv",
    log:
        "logs/reports/read.log",
    benchmark:
        "results/benchmarks/reports/read.tsv"
    localrule: True
    conda:
        "../envs/reports.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(20),
    params:
        options=OPTIONS["reports_read"],
        code=code_digest("reports.py", "ils.reports.understood"),
    script:
        "../scripts/reports.py"


rule reports:
    input:
        BESIDES,
        read=[ancient(path) for path in rules.reports_read.output],  # made with it, no part of the ledger
        shards=expand("results/reports/{shard}.jsonl", shard=SHARDS),
        excluded=expand("results/reports/{shard}.excluded.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
    output:
        excluded="results/reports/excluded.parquet",
    log:
        "logs/reports/gather.log",
    benchmark:
        "results/benchmarks/reports/gather.tsv"
    localrule: True
    conda:
        "../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        code=code_digest("gather.py"),
    script:
        "../scripts/gather.py"
