"""The priors stage: takes the paper's priors of each finding's position and size, or fits them to experts' boxes."""
