# Detectors: train on real, synthetic and control images (semisyn.detectors.runs), and predict boxes on references.

DETECTORS = PLAN.semisyn.detectors


rule semisyn_detectors_pictures:
    input:
        annotations=lambda wildcards: DETECTORS.annotations[wildcards.reference],
        pictures=lambda wildcards: DETECTORS.image_sources[wildcards.reference],
    output:
        output="results/semisyn/references/{reference}/images.parquet",
    log:
        "logs/semisyn/detectors/{reference}.images.log",
    benchmark:
        "results/benchmarks/semisyn/detectors/{reference}.images.tsv"
    wildcard_constraints:
        reference="|".join(map(re.escape, DETECTORS.image_sources)) or "$^",
    conda:
        "../../envs/semisyn_detectors.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("semisyn.detectors.reference_images.run_listing", *DETECTORS.formats),
        reference=lambda wildcards: DETECTORS.listing_options(wildcards.reference),
    message:
        "List of the images of the reference {wildcards.reference}"
    script:
        "../../scripts/job.py"


use rule frames_shard as semisyn_detectors_frames with:
    input:
        cohort="results/semisyn/references/{reference}/images.parquet",
    output:
        output="results/semisyn/references/{reference}/frames.h5",
        excluded="results/semisyn/references/{reference}/frames.excluded.parquet",
        corrected="results/semisyn/references/{reference}/frames.corrected.parquet",
        files_read="results/cohort/files_read/semisyn/{reference}.parquet",
    log:
        "logs/semisyn/detectors/{reference}.frames.log",
    benchmark:
        "results/benchmarks/semisyn/detectors/{reference}.frames.tsv"
    message:
        "Frames of the reference {wildcards.reference}"


rule semisyn_detectors_roles:
    input:
        **DETECTORS.role_inputs,
    output:
        output="results/semisyn/detectors/roles.tsv",
    log:
        "logs/semisyn/detectors/roles.log",
    benchmark:
        "results/benchmarks/semisyn/detectors/roles.tsv"
    priority: 100  # a failed check should end the run before any training
    conda:
        "../../envs/semisyn_detectors.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("semisyn.detectors.reference_images.run_roles", *DETECTORS.formats),
        options={"references": list(DETECTORS.references.values()), "findings": PLAN.settings.semisyn.findings},
    message:
        "Check that no patient is in both training and test images"
    script:
        "../../scripts/job.py"


rule semisyn_detectors_model:
    input:
        unpack(lambda wildcards: DETECTORS.inputs[wildcards.run]),
        **DETECTORS.engine_files,
    output:
        model=directory("results/semisyn/detectors/{run}.s{number}/model"),
        updates="results/semisyn/detectors/{run}.s{number}/updates.tsv",
        epochs="results/semisyn/detectors/{run}.s{number}/epochs.tsv",
        pools="results/semisyn/detectors/{run}.s{number}/pools.tsv",
    log:
        "logs/semisyn/detectors/{run}.s{number}.log",
    benchmark:
        "results/benchmarks/semisyn/detectors/{run}.s{number}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, DETECTORS.runs)),
        number=r"\d+",
    conda:
        f"../../envs/semisyn_detectors-{DETECTORS.engine}.yaml"
    threads: 1
    resources:
        gpu=DETECTORS.gpus,
        mem_mb=megabytes(lambda wildcards: DETECTORS.megabytes(wildcards.run)),
        runtime=minutes(1440),
    params:
        **job(
            "semisyn.detectors.train_detector.run",
            f"semisyn.detectors.{DETECTORS.engine}",
            *DETECTORS.formats,
        ),
        options=lambda wildcards: DETECTORS.runs[wildcards.run],
    message:
        "Training of detector {wildcards.number} of the run {wildcards.run}"
    script:
        "../../scripts/job.py"


rule semisyn_detectors_predictions:
    input:
        model="results/semisyn/detectors/{run}.s{number}/model",
        annotations=lambda wildcards: DETECTORS.annotations[wildcards.reference],
        frames=lambda wildcards: DETECTORS.frames[wildcards.reference],
        # this check is no input of the training, so that a changed test reference retrains nothing
        roles="results/semisyn/detectors/roles.tsv",
    output:
        output="results/semisyn/detection/{run}.s{number}/{reference}.parquet",
    log:
        "logs/semisyn/detectors/{run}.s{number}.{reference}.log",
    benchmark:
        "results/benchmarks/semisyn/detectors/{run}.s{number}.{reference}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, DETECTORS.runs)),
        number=r"\d+",
        reference="|".join(map(re.escape, DETECTORS.scored)) or "$^",
    conda:
        f"../../envs/semisyn_detectors-{DETECTORS.engine}.yaml"
    threads: 1
    resources:
        gpu=DETECTORS.gpus,
        mem_mb=megabytes(4000),
        runtime=minutes(240),
    params:
        **job(
            "semisyn.detectors.train_detector.run_predictions",
            f"semisyn.detectors.{DETECTORS.engine}",
            *DETECTORS.formats,
        ),
        options=lambda wildcards: {
            "engine": DETECTORS.engine,
            "engine_settings": DETECTORS.runs[wildcards.run]["engine_settings"],
            "findings": PLAN.settings.semisyn.findings,
            "reference": DETECTORS.references[wildcards.reference],
        },
    message:
        "Predictions of detector {wildcards.number} of the run {wildcards.run} on {wildcards.reference}"
    script:
        "../../scripts/job.py"


rule semisyn_detectors:
    input:
        expand("results/semisyn/detectors/{run}.s{number}/model", run=DETECTORS.runs, number=DETECTORS.numbers),
        [path for *_, path in DETECTORS.predictions()],
