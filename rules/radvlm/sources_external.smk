# RadVLM's external sources: facts, texts and lists of images, and frames of sources that have their own images.


rule radvlm_sources_read:
    input:
        tables=lambda wildcards: PLAN.radvlm.source_tables(wildcards.source),
    output:
        images="results/radvlm/sources/{source}/images.parquet",
        facts="results/radvlm/sources/{source}/facts.parquet",
        texts="results/radvlm/sources/{source}/texts.jsonl",
        excluded="results/radvlm/sources/{source}/excluded.parquet",
        counts="results/radvlm/sources/{source}/counts.tsv",
        conservation="results/radvlm/sources/{source}/conservation.tsv",
        shards=expand("results/radvlm/sources/{{source}}/{shard}.parquet", shard=PLAN.shards),
    log:
        "logs/radvlm/sources/{source}.log",
    benchmark:
        "results/benchmarks/radvlm/sources/{source}.tsv"
    wildcard_constraints:
        source=PLAN.radvlm.source_pattern(mimic=False),
    conda:
        "../../envs/radvlm_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(12000),
        runtime=minutes(240),
    params:
        **job("radvlm.sources.read_sources.run", *PLAN.radvlm.source_modules),
        options=lambda wildcards: PLAN.radvlm.source_options(wildcards.source),
    message:
        "RadVLM: facts of the source {wildcards.source}"
    script:
        "../../scripts/job.py"


# MS-CXR and Chest ImaGenome annotate images of MIMIC-CXR and use its frames.
use rule radvlm_sources_read as radvlm_sources_on_mimic with:
    input:
        tables=lambda wildcards: PLAN.radvlm.source_tables(wildcards.source),
        mimic=lambda wildcards: f"results/radvlm/sources/{PLAN.radvlm.declared[wildcards.source]['pictures']}/images.parquet",
    output:
        images="results/radvlm/sources/{source}/images.parquet",
        facts="results/radvlm/sources/{source}/facts.parquet",
        texts="results/radvlm/sources/{source}/texts.jsonl",
        excluded="results/radvlm/sources/{source}/excluded.parquet",
        counts="results/radvlm/sources/{source}/counts.tsv",
        conservation="results/radvlm/sources/{source}/conservation.tsv",
    wildcard_constraints:
        source=PLAN.radvlm.source_pattern(mimic=True),
    message:
        "RadVLM: facts of the source {wildcards.source}, on images of MIMIC-CXR"


use rule frames_shard as radvlm_sources_frames with:
    input:
        cohort="results/radvlm/sources/{source}/{shard}.parquet",
    output:
        output="results/radvlm/sources/{source}/frames/{shard}.h5",
        excluded="results/radvlm/sources/{source}/frames/{shard}.excluded.parquet",
        corrected="results/radvlm/sources/{source}/frames/{shard}.corrected.parquet",
        files_read="results/cohort/files_read/radvlm/{source}/{shard}.parquet",
    log:
        "logs/radvlm/sources/{source}/{shard}.frames.log",
    benchmark:
        "results/benchmarks/radvlm/sources/{source}/{shard}.frames.tsv"
    wildcard_constraints:
        source=PLAN.radvlm.source_pattern(mimic=False),
    message:
        "Frames of the source {wildcards.source}, shard {wildcards.shard}"


rule radvlm_sources_splits:
    input:
        images=expand("results/radvlm/sources/{source}/images.parquet", source=PLAN.radvlm.sources),
    output:
        conflicts_out="results/radvlm/sources/split_conflicts.parquet",
    log:
        "logs/radvlm/sources/splits.log",
    benchmark:
        "results/benchmarks/radvlm/sources/splits.tsv"
    localrule: True
    conda:
        "../../envs/radvlm_sources.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(20),
    params:
        **job("radvlm.sources.read_sources.run_splits"),
        families=PLAN.radvlm.families,
    message:
        "RadVLM: subjects that are in different splits in two sources"
    script:
        "../../scripts/job.py"


rule radvlm_sources:
    input:
        expand("results/radvlm/sources/{source}/facts.parquet", source=PLAN.radvlm.sources),
        "results/radvlm/sources/split_conflicts.parquet",
        sorted({path for source in PLAN.radvlm.sources if source != "own" for path in PLAN.radvlm.frames_of(source)}),
