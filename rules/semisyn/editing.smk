# Editing: put findings into the healthy images. Each engine has its own rule.

for engine in PLAN.semisyn.editing.files:

    rule:
        name:
            f"semisyn_editing_{engine}"
        input:
            **PLAN.semisyn.editing.files[engine],
            findings_file=PLAN.semisyn.findings_file,
            plan="results/semisyn/placement/plan.parquet",
            placed=expand("results/semisyn/placement/{shard}.parquet", shard=PLAN.semisyn.source_shards),
            frames=expand("results/frames/{shard}.h5", shard=PLAN.semisyn.source_shards),
            organs=expand("results/organs/{shard}.h5", shard=PLAN.semisyn.source_shards),
            choice=lambda wildcards: (
                "results/semisyn/selection/choice.yaml"
                if wildcards.config == "chosen" and PLAN.semisyn.editing.is_selected
                else []
            ),
        output:
            output=f"results/semisyn/editing/{engine}/{{config}}/{{shard}}.h5",
            boxes=f"results/semisyn/editing/{engine}/{{config}}/{{shard}}.boxes.parquet",
            excluded=f"results/semisyn/editing/{engine}/{{config}}/{{shard}}.excluded.parquet",
        log:
            f"logs/semisyn/editing/{engine}/{{config}}/{{shard}}.log",
        benchmark:
            f"results/benchmarks/semisyn/editing/{engine}/{{config}}/{{shard}}.tsv"
        wildcard_constraints:
            config=PLAN.semisyn.editing.ungrouped_pattern(engine),
        group:
            PLAN.groups[f"semisyn_editing_{engine}"]
        conda:
            f"../../envs/semisyn_editing-{engine}.yaml"
        threads: 2
        resources:
            gpu=PLAN.semisyn.editing.gpus[engine],
            mem_mb=megabytes(8000),
            runtime=minutes(1440 if PLAN.semisyn.editing.gpus[engine] else 20),
        params:
            **job("semisyn.editing.edit_images.run_shard", f"semisyn.editing.{engine}"),
            options=PLAN.semisyn.editing.single_options(PLAN.options["semisyn_editing"], engine),
            engine=engine,
        message:
            "Edited images of shard {wildcards.shard}, configuration {wildcards.config}"
        script:
            "../../scripts/job.py"

    # one rule per group of configurations that share part of the computation
    for number, configs in enumerate(PLAN.semisyn.editing.groups[engine]):

        rule:
            name:
                f"semisyn_editing_{engine}_together{number}"
            input:
                **PLAN.semisyn.editing.files[engine],
                findings_file=PLAN.semisyn.findings_file,
                plan="results/semisyn/placement/plan.parquet",
                placed=expand("results/semisyn/placement/{shard}.parquet", shard=PLAN.shards),
                frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
                organs=expand("results/organs/{shard}.h5", shard=PLAN.shards),
            output:
                output=[f"results/semisyn/editing/{engine}/{name}/{{shard}}.h5" for name in configs],
                boxes=[f"results/semisyn/editing/{engine}/{name}/{{shard}}.boxes.parquet" for name in configs],
                excluded=[f"results/semisyn/editing/{engine}/{name}/{{shard}}.excluded.parquet" for name in configs],
            log:
                f"logs/semisyn/editing/{engine}/together{number}/{{shard}}.log",
            benchmark:
                f"results/benchmarks/semisyn/editing/{engine}/together{number}/{{shard}}.tsv"
            conda:
                f"../../envs/semisyn_editing-{engine}.yaml"
            threads: 2
            resources:
                gpu=PLAN.semisyn.editing.gpus[engine],
                mem_mb=megabytes(8000),
                runtime=minutes(1440),
            params:
                **job("semisyn.editing.edit_images.run_shard", f"semisyn.editing.{engine}"),
                options=PLAN.semisyn.editing.options(PLAN.options["semisyn_editing"], engine, configs, {}),
                engine=engine,
                together=configs,
            message:
                "Edited images of shard {wildcards.shard}, several configurations"
            script:
                "../../scripts/job.py"


rule semisyn_editing:
    input:
        expand(
            "results/semisyn/editing/{engine}/chosen/{shard}.h5",
            shard=PLAN.shards,
            engine=PLAN.semisyn.editing.chosen_engines,
        ),
