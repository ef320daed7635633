"""The selection stage: chooses each finding's editing configuration by scores (the paper's sections 3.6 and 4.2)."""
