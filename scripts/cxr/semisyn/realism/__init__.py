"""How far edited X-rays look like real ones with the finding (the paper's sections 3.6 and 4.2)."""
