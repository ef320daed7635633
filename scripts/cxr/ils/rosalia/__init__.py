"""The model ROSALIA: LLaVA, SAM and their inputs."""
