"""Metrics and their confidence intervals, on arrays alone; one module per kind of data.

masks (IoU, Dice, gIoU, cIoU, N-Acc), boxes (matching, recall, precision), labels (precision, recall, F1), raters
(kappa, AC1), bootstrap (intervals of ratios and of paired differences).
"""
