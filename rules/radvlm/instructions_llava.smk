# A mix of RadVLM's instructions as LLaVA's trainers read it, by request.


rule radvlm_instructions_llava:
    input:
        lines=expand("results/radvlm/instructions/{{mix}}/{split}.jsonl", split=PLAN.splits),
        frames=PLAN.radvlm.all_frames(),
        images=expand("results/radvlm/sources/{source}/images.parquet", source=PLAN.radvlm.sources),
    output:
        folder=directory("results/radvlm/instructions/{mix}/llava"),
    log:
        "logs/radvlm/instructions/{mix}.llava.log",
    benchmark:
        "results/benchmarks/radvlm/instructions/{mix}.llava.tsv"
    wildcard_constraints:
        mix="|".join(PLAN.radvlm.mixes),
    conda:
        "../../envs/radvlm_instructions.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("radvlm.instructions.llava.run"),
        options=PLAN.radvlm.options["instructions"]["llava"] | {"folders": PLAN.radvlm.folders},
    message:
        "RadVLM: the mix {wildcards.mix} for LLaVA's trainers"
    script:
        "../../scripts/job.py"
