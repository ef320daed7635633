"""Columns of the tables that the masks stage writes. Valid locations are in the order of Table 9."""

import polars as pl

from cxr.base.columns import Column, Columns

TEXTS, NUMBERS = pl.List(pl.String), pl.List(pl.Int64)
NAMES: Columns = {
    "study_id": Column(pl.String, "Study."),
    "image_id": Column(pl.String, "Image of the study."),
    "subject_id": Column(pl.String, "Patient."),
    "split": Column(pl.String, "train, validate or test."),
    "unedited": Column(
        pl.Boolean,
        "Whether the image itself stands as the edited image, because the report asks for no mask of the anomaly map "
        "(`anomaly.images`).",
    ),
}
FINDINGS: Columns = NAMES | {
    "finding": Column(pl.Int64, "Index of the tuple in the report line's `tuples`."),
    "entity": Column(pl.String, "The finding without its location."),
    "sentence_index": Column(pl.Int64, "Sentence of the section, from 1."),
    "target": Column(pl.String, "One of the seven lesion types; null for a finding that only blocks."),
    "word": Column(pl.String, "Its name in an instruction: `opacity` if tentative, else the target."),
    "certainty": Column(pl.String, "definitive or tentative."),
    "hedge": Column(pl.String, "The weaker of the finding's own grade and its explanation's grade."),
    "reported": Column(TEXTS, "Zone labels that the report names."),
    "grounded": Column(TEXTS, "Zone labels that the mask confirms."),
    "locations": Column(TEXTS, "Valid locations by which the mask is named."),
    "reported_locations": Column(TEXTS, "Valid locations that the reported labels could be named by."),
    "mask_id": Column(pl.String, "Its mask; null without one."),
    "area": Column(pl.Int64, "Area of the mask.", "pixels"),
    "productive_boxes": Column(pl.Int64, "Number of boxes that add to the mask."),
    "reason": Column(
        pl.String,
        "null for a grounded mask, else `no_lesion` `predicted_other` `related_term` `weak_hedge` `no_labels` "
        "`no_anatomy` `no_productive_box` `empty_after_refine` `no_grounded_label` `no_name` `no_heart`.",
    ),
    "share_outside": Column(pl.Float64, "Fraction of the mask outside its own labels; null without a lesion mask."),
    "shared_with": Column(NUMBERS, "Findings whose masks overlap this mask, except the heart."),
    "box_verdicts": Column(
        pl.List(pl.UInt8),
        "One number per kept box of the image, in the order of the boxes table: the bits of the failed conditions, "
        "0 for a productive box. Empty if Algorithm 1 did not run.",
    ),
}
UNITS: Columns = NAMES | {
    "unit": Column(
        pl.Int64,
        "From 0 in each image: basics in the order of their findings, then globals in the order of lesion types.",
    ),
    "kind": Column(pl.String, "basic or global."),
    "target": Column(pl.String, "Lesion type."),
    "word": Column(pl.String, "Its name in an instruction."),
    "certainty": Column(pl.String, "definitive or tentative."),
    "sentence_index": Column(pl.Int64, "Sentence of the section, from 1."),
    "location": Column(TEXTS, "Valid locations; `heart` for cardiomegaly."),
    "grounded_location": Column(TEXTS, "Zone labels that the mask confirms; `heart` for cardiomegaly."),
    "reported_location": Column(TEXTS, "Zone labels that the report names; `heart` for cardiomegaly."),
    "finding": Column(NUMBERS, "Tuple indexes: the finding itself, then the joined or merged findings."),
    "mask_id": Column(pl.String, "Its mask; null if dropped."),
    "area": Column(pl.Int64, "Area of the mask.", "pixels"),
    "inference": Column(
        pl.Boolean, "Whether the basic has a lesion-inference twin with the same mask, location, target and certainty."
    ),
    "dropped": Column(pl.String, "Why it makes no pair: `ungrounded_sibling`; else null."),
    "inference_dropped": Column(
        pl.String,
        "Why a basic of pneumonia, atelectasis or edema has no twin, else null: `several_candidates` `several_types` "
        "`conflicting_answer`.",
    ),
}
STUDIES: Columns = NAMES | {
    "ctr": Column(pl.Float64, "Cardiothoracic ratio in original pixels; null without heart or lungs."),
    "reported": Column(TEXTS, "Valid locations that overlap a zone mask that any positive finding reports."),
    "blocked": Column(TEXTS, "Valid locations where a finding could be, so no negative may name them."),
    "occupied": Column(TEXTS, "Valid locations that hold a pixel of a lesion mask other than the heart."),
    "empty": Column(TEXTS, "Valid locations that a negative may name."),
    "standing": Column(
        pl.List(pl.Struct({"lesion": pl.String, "locations": TEXTS})),
        "Each lesion type that is itself affirmed, hedged, a candidate or blocking (not through a kind under it), and "
        "the valid locations where it is or could be; cardiomegaly has none.",
    ),
    "related": Column(TEXTS, "Lesion types with a related term in the report."),
    "lesion_blocked": Column(
        pl.List(
            pl.Struct({"lesion": pl.String, "locations": TEXTS, "anywhere": pl.Boolean, "global_blocked": pl.Boolean})
        ),
        "All seven types in order. `locations`: where there is a finding of the type (or of a kind under it if `kinds` "
        "is strict); `anywhere`: whether there is such a finding; `global_blocked`: whether such a finding, a related "
        "term or, for opacity, a location that is not empty forbids a global negative.",
    ),
    "signs": Column(
        pl.List(pl.Struct({"location": pl.String, "box_confidence": pl.Float64, "anomalous_fraction": pl.Float64})),
        "Per visible valid location the highest confidence of a kept box with a tenth of its area there, and the "
        "fraction of anomalous pixels (null without an anomaly map). A silent denial needs a quiet location.",
    ),
}
SWEEP: Columns = {
    "thresholds": Column(pl.String, "Threshold set or grid point."),
    **NAMES,
    "lesion": Column(pl.String, "One of the six lesion types that need a mask by Algorithm 1."),
    "findings": Column(pl.Int64, "Findings of that type that need a mask."),
    "has_labels": Column(pl.Boolean, "Whether any of them has a zone label."),
    "masks": Column(pl.Int64, "Findings with a mask."),
    "grounded": Column(pl.Int64, "Findings with a grounded mask."),
    "mask_px": Column(pl.Int64, "Area of the union of the grounded masks.", "pixels"),
}
