"""Instruction data of any system: the record of a sample, and the export formats.

``record`` defines the sample, ``lines`` writes one JSON Lines file per split, ``studies`` the JSON of the published
MIMIC-ILS, ``coco`` masks in COCO's format.
"""
