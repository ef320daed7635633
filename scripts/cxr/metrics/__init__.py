"""Measures and their intervals: a file for each kind of thing compared. They know arrays, and no stage.

masks (IoU, Dice, gIoU, cIoU, N-Acc), boxes (matching, recall, precision), labels (precision, recall, F1), raters
(kappa, AC1), bootstrap (intervals of ratios and of paired differences).
"""
