"""The small detector of boxes: its grid, net, training and file of weights; what nets of boxes have in common."""
