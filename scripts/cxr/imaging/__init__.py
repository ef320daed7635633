"""The stages that process images; every system of the workflow builds on them."""
