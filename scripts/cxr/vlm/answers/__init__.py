"""Answers: asking a tuned or published model, or reading answers of an external model."""
