"""Metrics and their confidence intervals, computed from arrays. Each module has one kind of metric:

masks (IoU, Dice, gIoU, cIoU, N-Acc), matching (recall and precision of boxes), average_precision (AP), answer_boxes (AP
without confidences), labels (precision, recall, F1, AUROC), reports (ROUGE, BLEU, F1 of facts, GREEN), raters (kappa,
AC1), distances (FID, KID), intervals (bootstrap, Wilson), paired (two detectors on the same images), edits (edited
radiographs), appearance (lesions in edited radiographs).
"""
