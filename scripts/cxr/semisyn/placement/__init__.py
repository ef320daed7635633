"""The placement stage: assigns each job a healthy image, a prompt and boxes."""
