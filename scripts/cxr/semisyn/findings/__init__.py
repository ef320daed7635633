"""Findings, as all stages of SemiSynCXR use them: catalogue, prompts, zones and the distributions of their boxes."""
