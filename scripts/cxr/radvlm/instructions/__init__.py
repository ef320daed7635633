"""RadVLM's instructions: facts, texts and conversations of all sources become the samples of a mix."""
