# RadVLM's sources in one format: facts, texts and images. The source `own` is the cohort, which is read by shard.


rule radvlm_sources_own:
    input:
        manifest="results/cohort/images.parquet",
        cohort="results/cohort/{shard}.parquet",
        frames="results/frames/{shard}.h5",
        reports="results/reports/{shard}.jsonl",
        organs="results/organs/{shard}.h5",
        anatomy="results/anatomy/{shard}.h5",
        findings=f"results/masks/{PLAN.radvlm.thresholds}/{{shard}}.findings.parquet",
        masks=f"results/masks/{PLAN.radvlm.thresholds}/{{shard}}.h5",
        labels=["results/radvlm/sources/own/{shard}.labels.jsonl"] if PLAN.radvlm.label_files else [],
    output:
        images="results/radvlm/sources/own/{shard}.images.parquet",
        facts="results/radvlm/sources/own/{shard}.facts.parquet",
        texts="results/radvlm/sources/own/{shard}.texts.jsonl",
        excluded="results/radvlm/sources/own/{shard}.excluded.parquet",
        counts="results/radvlm/sources/own/{shard}.counts.tsv",
        conservation="results/radvlm/sources/own/{shard}.conservation.tsv",
    log:
        "logs/radvlm/sources/own/{shard}.log",
    benchmark:
        "results/benchmarks/radvlm/sources/own/{shard}.tsv"
    group:
        "radvlm_sources"
    conda:
        "../../envs/radvlm_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(3000),
        runtime=minutes(20),
    params:
        **job("radvlm.sources.read_own.run_shard"),
        options=PLAN.radvlm.own_options,
    message:
        "RadVLM: facts of the cohort, shard {wildcards.shard}"
    script:
        "../../scripts/job.py"


rule radvlm_sources_tables:
    input:
        images=expand("results/radvlm/sources/own/{shard}.images.parquet", shard=PLAN.shards),
        facts=expand("results/radvlm/sources/own/{shard}.facts.parquet", shard=PLAN.shards),
        texts=expand("results/radvlm/sources/own/{shard}.texts.jsonl", shard=PLAN.shards),
        excluded=expand("results/radvlm/sources/own/{shard}.excluded.parquet", shard=PLAN.shards),
        counts=expand("results/radvlm/sources/own/{shard}.counts.tsv", shard=PLAN.shards),
        conservation=expand("results/radvlm/sources/own/{shard}.conservation.tsv", shard=PLAN.shards),
    output:
        images_out="results/radvlm/sources/own/images.parquet",
        facts_out="results/radvlm/sources/own/facts.parquet",
        texts_out="results/radvlm/sources/own/texts.jsonl",
        excluded_out="results/radvlm/sources/own/excluded.parquet",
        counts_out="results/radvlm/sources/own/counts.tsv",
        conservation_out="results/radvlm/sources/own/conservation.tsv",
    log:
        "logs/radvlm/sources/own/tables.log",
    benchmark:
        "results/benchmarks/radvlm/sources/own/tables.tsv"
    localrule: True
    conda:
        "../../envs/radvlm_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(20),
    params:
        **job("radvlm.sources.read_own.run_tables"),
    message:
        "RadVLM: facts of the cohort, all shards"
    script:
        "../../scripts/job.py"


# Labels of the cohort's reports by CheXbert, if radvlm.sources.labels is chexbert.


rule radvlm_sources_labels:
    input:
        **PLAN.radvlm.label_files,
        reports="results/reports/{shard}.jsonl",
    output:
        labels="results/radvlm/sources/own/{shard}.labels.jsonl",
    log:
        "logs/radvlm/sources/own/{shard}.labels.log",
    benchmark:
        "results/benchmarks/radvlm/sources/own/{shard}.labels.tsv"
    conda:
        "../../envs/radvlm_sources-chexbert.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("radvlm.chexbert.label_shard"),
        **PLAN.radvlm.label_options,
    message:
        "RadVLM: labels of the reports of shard {wildcards.shard}"
    script:
        "../../scripts/job.py"
