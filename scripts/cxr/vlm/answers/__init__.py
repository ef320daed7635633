"""The stage vlm_answers: ask a tuned or published model, or read the answers of an external model."""
