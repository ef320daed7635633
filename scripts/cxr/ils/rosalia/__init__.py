"""The model ROSALIA, made of LLaVA and SAM, and its inputs."""
