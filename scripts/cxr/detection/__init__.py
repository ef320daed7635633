"""The small box detector (grid, net, training, weights file), and pre- and postprocessing for all detection nets."""
