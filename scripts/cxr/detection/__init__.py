"""The small box detector (grid, net, training, weights file), and code that all detection nets share."""
