# RadVLM's instructions: samples of a mix from each source, then the joined mix in splits, shuffled, with Table 1.


rule radvlm_instructions_part:
    input:
        unpack(lambda wildcards: PLAN.radvlm.ils_files(wildcards.mix, wildcards.source)),
        images="results/radvlm/sources/{source}/images.parquet",
        facts="results/radvlm/sources/{source}/facts.parquet",
        texts="results/radvlm/filtered/{source}/texts.jsonl",
        phrases="results/radvlm/filtered/{source}/phrases.jsonl",
        conflicts="results/radvlm/sources/split_conflicts.parquet",
        frames=lambda wildcards: PLAN.radvlm.frames_of(wildcards.source),
        conversations=lambda wildcards: (
            [f"results/radvlm/conversations/{wildcards.source}/conversations.jsonl"]
            if wildcards.source in PLAN.radvlm.conversation_sources(wildcards.mix)
            else []
        ),
    output:
        lines_out="results/radvlm/instructions/{mix}/parts/{source}.jsonl",
        index="results/radvlm/instructions/{mix}/parts/{source}.index.parquet",
        excluded="results/radvlm/instructions/{mix}/parts/{source}.excluded.tsv",
    log:
        "logs/radvlm/instructions/{mix}/{source}.log",
    benchmark:
        "results/benchmarks/radvlm/instructions/{mix}/{source}.tsv"
    wildcard_constraints:
        mix="|".join(PLAN.radvlm.mixes),
        source="|".join(map(re.escape, PLAN.radvlm.sources)),
    conda:
        "../../envs/radvlm_instructions.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job("radvlm.instructions.write_part.run"),
        options=lambda wildcards: PLAN.radvlm.part_options(wildcards.mix, wildcards.source),
    message:
        "RadVLM: samples of the mix {wildcards.mix}, source {wildcards.source}"
    script:
        "../../scripts/job.py"


rule radvlm_instructions_mix:
    input:
        lines=lambda wildcards: expand(
            "results/radvlm/instructions/{mix}/parts/{source}.jsonl",
            mix=wildcards.mix,
            source=PLAN.radvlm.sources_of(wildcards.mix),
        ),
        indices=lambda wildcards: expand(
            "results/radvlm/instructions/{mix}/parts/{source}.index.parquet",
            mix=wildcards.mix,
            source=PLAN.radvlm.sources_of(wildcards.mix),
        ),
        excluded=lambda wildcards: expand(
            "results/radvlm/instructions/{mix}/parts/{source}.excluded.tsv",
            mix=wildcards.mix,
            source=PLAN.radvlm.sources_of(wildcards.mix),
        ),
    output:
        train="results/radvlm/instructions/{mix}/train.jsonl",
        validate="results/radvlm/instructions/{mix}/validate.jsonl",
        test="results/radvlm/instructions/{mix}/test.jsonl",
        exchanged_out="results/radvlm/instructions/{mix}/exchanged.jsonl",
        table1_out="results/radvlm/instructions/{mix}/table1.tsv",
        conservation_out="results/radvlm/instructions/{mix}/conservation.tsv",
    log:
        "logs/radvlm/instructions/{mix}.log",
    benchmark:
        "results/benchmarks/radvlm/instructions/{mix}.tsv"
    wildcard_constraints:
        mix="|".join(PLAN.radvlm.mixes),
    conda:
        "../../envs/radvlm_instructions.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(120),
    params:
        **job("radvlm.instructions.join_parts.run"),
        options=lambda wildcards: PLAN.radvlm.mix_options(wildcards.mix),
    message:
        "RadVLM: the mix {wildcards.mix}"
    script:
        "../../scripts/job.py"


rule radvlm_instructions:
    input:
        expand("results/radvlm/instructions/{mix}/table1.tsv", mix=PLAN.radvlm.mixes),


# Export of a mix for LLaVA's training code. It is made by its path.


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
        options=PLAN.settings.radvlm.instructions.llava.as_dict() | {"folders": PLAN.radvlm.folders},
    message:
        "RadVLM: the mix {wildcards.mix} for LLaVA's trainers"
    script:
        "../../scripts/job.py"
