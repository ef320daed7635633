"""What the codes of the masks and dataset stages mean to a reader; those of the ledgers are in ``core.labels``."""

FINDING_REASONS = {
    "no_lesion": "at its place it is not one of the seven lesion types: it only blocks negatives",
    "predicted_other": "the report explains it by what is no lesion: it only blocks negatives",
    "related_term": "a neighbouring term of a lesion type: it only blocks negatives",
    "weak_hedge": "too weakly hedged (dataset.weak_hedges): it only blocks negatives",
    "no_labels": "the report names no place in the lungs",
    "no_anatomy": "the masks of the places named are empty",
    "no_productive_box": "no box holds all conditions",
    "empty_after_refine": "boxes hold all conditions, but nothing of their components is left after refining",
    "no_grounded_label": "there is a mask, but it confirms none of the places named",
    "no_name": "there is a mask, but no valid location names it",
    "no_heart": "the heart mask is empty",
}
"""Why a finding has no mask, or none that is used."""

BOX_FAULTS = {
    "anatomy": "IoU with the place",
    "conf": "confidence",
    "signal": "anomalous share",
    "size": "IoU with a lung",
    "zero_area": "no area",
    "empty_after_refine": "nothing left to mask",
}
"""The conditions of a box, by the names of ``labels.BOX_CONDITIONS``."""

PAIR_REASONS = {
    "ungrounded_sibling": "another finding of that name inside the place was not confirmed",
    "several_candidates": "the report offers several explanations",
    "several_types": "findings of several types share the instruction",
    "conflicting_answer": "the same instruction would have different answers",
    "related_term": "a neighbouring term stands in the report",
    "neither_affirmed_nor_denied": "the report names it without affirming or denying it",
    "section_silent": "the section says nothing of lungs or pleura that is not a comparison",
    "not_understood": "the section holds too many unknown words (dataset.unknown_words_max) for its silence to count",
    "no_empty_location": "no location is free of findings, masks and blocks",
    "heart_affirmed_or_hedged": "the report affirms or hedges a large heart",
    "wide_heart": "the cardiothoracic ratio is above dataset.ctr_negative_max, or there is none",
    "same_text": "the instruction already has another answer in this study",
    "other_image": "another image of the study carries this negative",
}
"""Why a pair was not made."""


def meaning(code: str, words: dict[str, str]) -> str:
    """Return "code: what it means", or the bare code if it has no entry."""
    return f"{code}: {words[code]}" if code in words else code
