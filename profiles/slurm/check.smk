# Jobs of `make slurm-check ARGS="--submit …"` on nodes with GPUs. In the environment of each engine that needs a GPU,
# torch is tried. The configuration of these jobs is written by scripts/cxr/workflow/slurm/devices.py.
ENVIRONMENTS = config["environments"]


wildcard_constraints:
    environment="|".join(ENVIRONMENTS),


if config["container"]:

    containerized: config["container"]


rule all:
    input:
        expand("{environment}.txt", environment=ENVIRONMENTS),


rule slurm_check_devices:
    output:
        "{environment}.txt",
    log:
        "{environment}.log",
    conda:
        "../../envs/{environment}.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: ENVIRONMENTS[wildcards.environment]["gpus"],
        slurm_partition=lambda wildcards: ENVIRONMENTS[wildcards.environment]["partition"],
        nodes=1,
        mem_mb=8000,
        runtime=10,
    params:
        gpus=lambda wildcards: ENVIRONMENTS[wildcards.environment]["gpus"],
    script:
        "../../scripts/cxr/workflow/slurm/ask_torch.py"
