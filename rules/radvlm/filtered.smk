# RadVLM's single-image text: reports and phrases of a source without what needs another image.


rule radvlm_filtered_source:
    input:
        texts="results/radvlm/sources/{source}/texts.jsonl",
        facts="results/radvlm/sources/{source}/facts.parquet",
    output:
        texts_out="results/radvlm/filtered/{source}/texts.jsonl",
        phrases_out="results/radvlm/filtered/{source}/phrases.jsonl",
        excluded="results/radvlm/filtered/{source}/excluded.parquet",
        agreement="results/radvlm/filtered/{source}/agreement.tsv",
    log:
        "logs/radvlm/filtered/{source}.log",
    benchmark:
        "results/benchmarks/radvlm/filtered/{source}.tsv"
    wildcard_constraints:
        source="|".join(map(re.escape, PLAN.radvlm.sources)),
    conda:
        f"../../envs/radvlm_filtered-{PLAN.radvlm.filtering.environment}.yaml"
    threads: 8 if PLAN.radvlm.filtering.gpus else 1
    resources:
        gpu=PLAN.radvlm.filtering.gpus,
        nodes=1,  # else SLURM may take the GPUs of two
        mem_mb=megabytes(64000 if PLAN.radvlm.filtering.gpus else 4000),
        runtime=minutes(240),
    params:
        **job("radvlm.filtered.filter_texts.run", f"radvlm.filtered.{PLAN.radvlm.filtering.engine}"),
        options=PLAN.radvlm.options["filtered"],
    message:
        "RadVLM: single-image text of the source {wildcards.source}"
    script:
        "../../scripts/job.py"


rule radvlm_filtered:
    input:
        PLAN.radvlm.of_filtered("texts.jsonl"),
