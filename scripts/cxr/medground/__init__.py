"""MedGround makes a grounding dataset (images, sentences that refer to regions, and their boxes) from expert masks."""
