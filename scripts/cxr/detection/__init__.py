"""The small box detector (grid, net, training, weights file); pre- and postprocessing for all detection nets."""
