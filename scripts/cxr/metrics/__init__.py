"""Metrics and their confidence intervals, on arrays alone; one module per kind of data.

masks (IoU, Dice, gIoU, cIoU, N-Acc), matching (predicted and true boxes), boxes (recall, precision),
average_precision (AP), labels (precision, recall, F1), ranking (AUROC), raters (kappa, AC1), distances (FID, KID),
bootstrap (intervals of ratios and of paired differences), paired (two detectors on the same images).
"""
