"""The stage radvlm_instructions: makes the samples of each mix from facts, texts and conversations of all sources."""
