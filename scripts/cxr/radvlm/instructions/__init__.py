"""The stage radvlm_instructions: samples of a mix from the facts, texts and conversations of all sources."""
