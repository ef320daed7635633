"""The model library of ROSALIA: LLaVA, SAM and their inputs."""
