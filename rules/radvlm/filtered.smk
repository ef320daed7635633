# RadVLM's single-image text: reports and phrases without statements about another image. If the job loads a language
# model, one job processes all sources.


rule radvlm_filtered_source:
    input:
        texts=expand("results/radvlm/sources/{source}/texts.jsonl", **PLAN.radvlm.filter_jobs.wildcards),
        facts=expand("results/radvlm/sources/{source}/facts.parquet", **PLAN.radvlm.filter_jobs.wildcards),
    output:
        texts_out=expand("results/radvlm/filtered/{source}/texts.jsonl", **PLAN.radvlm.filter_jobs.wildcards),
        phrases_out=expand("results/radvlm/filtered/{source}/phrases.jsonl", **PLAN.radvlm.filter_jobs.wildcards),
        excluded=expand("results/radvlm/filtered/{source}/excluded.parquet", **PLAN.radvlm.filter_jobs.wildcards),
        agreement=expand("results/radvlm/filtered/{source}/agreement.tsv", **PLAN.radvlm.filter_jobs.wildcards),
    log:
        f"logs/radvlm/filtered/{PLAN.radvlm.filter_jobs.name('{source}')}.log",
    benchmark:
        f"results/benchmarks/radvlm/filtered/{PLAN.radvlm.filter_jobs.name('{source}')}.tsv"
    wildcard_constraints:
        source="|".join(map(re.escape, PLAN.radvlm.sources)),
    conda:
        f"../../envs/radvlm_filtered-{'vllm' if PLAN.radvlm.filter_options['model'] else 'rules'}.yaml"
    threads: 8 if PLAN.radvlm.filter_jobs.gpus else 1
    resources:
        gpu=PLAN.radvlm.filter_jobs.gpus,
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000 if PLAN.radvlm.filter_jobs.gpus else 4000),
        runtime=minutes(240),
    params:
        **job("radvlm.filtered.filter_texts.run", f"radvlm.filtered.{PLAN.settings.radvlm.filtered.engine}"),
        options=PLAN.radvlm.filter_options,
    message:
        f"RadVLM: single-image text of the sources: {PLAN.radvlm.filter_jobs.name('{wildcards.source}')}"
    script:
        "../../scripts/job.py"


rule radvlm_filtered:
    input:
        expand("results/radvlm/filtered/{source}/texts.jsonl", source=PLAN.radvlm.sources),
