"""Fine-tuning of ROSALIA on instruction-answer pairs."""
