"""What the stages of SemiSynCXR share about findings: their catalogue, prompts, zones and the laws of their boxes."""
