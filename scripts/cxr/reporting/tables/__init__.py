"""The paper's tables from our files, beside its values, and the proof that nothing is lost."""
