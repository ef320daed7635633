"""The priors stage: priors of position and size of each finding, the paper's or fitted to experts' boxes."""
