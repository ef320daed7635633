"""Answers: asking a tuned or published model, or reading answers that were made elsewhere."""
