"""The stages that process images. All four systems of the workflow (README.md) build on their results."""
