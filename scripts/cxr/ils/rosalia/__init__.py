"""The model library of ROSALIA: LLaVA, SAM and what feeds them."""
