# RadVLM's single-image text: reports and phrases of a source without what needs another image. A language model in the job is
# loaded once for all sources.


rule radvlm_filtered_source:
    input:
        texts=expand("results/radvlm/sources/{source}/texts.jsonl", source=PLAN.radvlm.filtering.sources),
        facts=expand("results/radvlm/sources/{source}/facts.parquet", source=PLAN.radvlm.filtering.sources),
    output:
        texts_out=expand("results/radvlm/filtered/{source}/texts.jsonl", source=PLAN.radvlm.filtering.sources),
        phrases_out=expand("results/radvlm/filtered/{source}/phrases.jsonl", source=PLAN.radvlm.filtering.sources),
        excluded=expand("results/radvlm/filtered/{source}/excluded.parquet", source=PLAN.radvlm.filtering.sources),
        agreement=expand("results/radvlm/filtered/{source}/agreement.tsv", source=PLAN.radvlm.filtering.sources),
    log:
        f"logs/radvlm/filtered/{PLAN.radvlm.filtering.name}.log",
    benchmark:
        f"results/benchmarks/radvlm/filtered/{PLAN.radvlm.filtering.name}.tsv"
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
        f"RadVLM: single-image text of the sources: {PLAN.radvlm.filtering.told}"
    script:
        "../../scripts/job.py"


rule radvlm_filtered:
    input:
        PLAN.radvlm.of_filtered("texts.jsonl"),
