"""The cohort stage: lists all images, selects frontal chest X-rays, and assigns each to a study, split and shard."""
