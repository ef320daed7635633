"""The realism stage: scores how similar edited X-rays are to real ones (the paper's sections 3.6 and 4.2)."""
