"""Random scored pairs."""

import numpy as np
import polars as pl

from cxr.ils import templates
from cxr.ils.evaluation import answer_rules
from cxr.ils.evaluation.evaluate import SCHEMA
from cxr.metrics import masks


def rows(seed: int, subjects: int = 9, pairs: int = 60) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    intersection = random.integers(0, 50, pairs)
    union = intersection + random.integers(0, 50, pairs)
    flags = {rule: random.random(pairs) < 0.6 for rule in answer_rules.RULES}
    data = {
        "pair_id": [f"p{number}" for number in range(pairs)],
        "subject_id": random.choice([f"s{number}" for number in range(subjects)], pairs),
        "target": random.choice(["edema", "effusion", "cardiomegaly"], pairs),
        "type": random.choice(templates.TYPES, pairs),
        "polarity": random.choice(["positive", "negative"], pairs),
        "intersection": intersection,
        "union": union,
        "iou": masks.lisa_iou(intersection, union),
        **flags,
        "reason": [""] * pairs,
        "detail": [""] * pairs,
    }
    return pl.DataFrame(data, schema=SCHEMA)
