"""Instruction data of any system: the record of a sample, and the files in which samples leave.

``record`` holds the sample, ``lines`` writes JSON Lines a split, ``studies`` the JSON of the published MIMIC-ILS,
``coco`` masks in COCO's format.
"""
