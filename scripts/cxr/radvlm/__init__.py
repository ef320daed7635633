"""RadVLM: instruction data from many chest X-ray datasets, and the scores of assistants that are tuned on them."""
