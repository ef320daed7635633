# Reports: select the section, split it into sentences, and extract findings with location and certainty.


rule reports_shard:
    input:
        **PLAN.engine_files["reports"],
        cohort="results/cohort/{shard}.parquet",
    output:
        output="results/reports/{shard}.jsonl",
        excluded="results/reports/{shard}.excluded.parquet",
        files_read="results/cohort/files_read/reports/{shard}.parquet",
    log:
        "logs/reports/{shard}.log",
    benchmark:
        "results/benchmarks/reports/{shard}.tsv"
    group:
        "reports"
    conda:
        "../../envs/reports.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(5),
    params:
        **job("language.reports.read_reports.run_shard", f"language.reports.{PLAN.engines['reports']}"),
        options=PLAN.options["reports"],
    message:
        "Reports of shard {wildcards.shard}: findings with location and certainty"
    script:
        "../../scripts/job.py"


# Agreement of the engine rules with the chosen engine, and a list of the studies in which they differ.
rule reports_agreement:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
    output:
        agreement=report(
            "results/reports/agreement.tsv",
            caption="../../report/agreement.rst",
            category="1 From images to pairs",
            labels={"table": "agreement of the report engines"},
        ),
        disagreements="results/reports/disagreements.tsv",
    log:
        "logs/reports/agreement.log",
    benchmark:
        "results/benchmarks/reports/agreement.tsv"
    conda:
        "../../envs/reports.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(20),
    params:
        **job("language.reports.compare_engines.run"),
        effusion_without_side=PLAN.options["reports"]["effusion_without_side"],
    message:
        "Reports: agreement of the engines"
    script:
        "../../scripts/job.py"


# Outcomes of all reports with reasons, and unknown words. A summary is printed at the end of the run.
rule reports_read:
    input:
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        excluded=expand("results/reports/{shard}.excluded.parquet", shard=PLAN.shards),
    output:
        words="results/reports/unknown_words.tsv",
        reading="results/reports/reading.tsv",
    log:
        "logs/reports/read.log",
    benchmark:
        "results/benchmarks/reports/read.tsv"
    localrule: True
    conda:
        "../../envs/reports.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(20),
    params:
        **job("language.reports.summarize_reports.run"),
        options=PLAN.options["reports_read"],
    message:
        "Reports: outcomes and unknown words"
    script:
        "../../scripts/job.py"


rule reports:
    input:
        "results/reports/agreement.tsv" if PLAN.settings.reports.engine == "both" else [],
        read=[ancient(path) for path in rules.reports_read.output],  # summary tables, whose age reruns nothing
        shards=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        excluded="results/reports/excluded.parquet",
