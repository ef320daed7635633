# Release: an instruction mix of RadVLM as one folder, without the withheld data.


rule release_mixes:
    input:
        lines=expand("results/radvlm/instructions/{{mix}}/{split}.jsonl", split=PLAN.splits),
        frames=[] if "pixels" in PLAN.settings.release.kinds() else PLAN.radvlm.all_frames(),
        salt=PLAN.settings.release.salt or [],
    output:
        package=directory("results/release/instructions/{mix}"),
    log:
        "logs/release/instructions/{mix}.log",
    benchmark:
        "results/benchmarks/release/instructions/{mix}.tsv"
    wildcard_constraints:
        mix="|".join(PLAN.radvlm.mixes),
    conda:
        "../../envs/release.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("reporting.release.mixes.run"),
        options=lambda wildcards: PLAN.options["release_mixes"]
        | {"mix": wildcards.mix, "terms": dict(PLAN.radvlm.formats), "folders": PLAN.radvlm.folders},
    message:
        "Release of RadVLM's mix {wildcards.mix}"
    script:
        "../../scripts/job.py"
