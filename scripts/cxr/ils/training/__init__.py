"""Training: fine-tuning of ROSALIA on instruction-answer pairs."""
