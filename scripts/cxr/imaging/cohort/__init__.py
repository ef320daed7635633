"""The cohort: lists all images, keeps frontal chest X-rays, and assigns each to a study, split and shard."""
