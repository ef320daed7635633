"""The selection stage: chooses a configuration for each finding by their scores (the paper's sections 3.6 and 4.2)."""
