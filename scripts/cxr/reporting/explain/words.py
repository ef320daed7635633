"""Meanings of the reason codes of the masks and dataset stages; ``cxr.base.exclusions`` has those of the ledgers."""

FINDING_REASONS = {
    "no_lesion": "at its location it is not one of the seven lesion types: it only blocks negatives",
    "predicted_other": "the report explains it by something that is not a lesion: it only blocks negatives",
    "related_term": "a term related to a lesion type: it only blocks negatives",
    "weak_hedge": "too weakly hedged (dataset.weak_hedges): it only blocks negatives",
    "no_labels": "the report names no location in the lungs",
    "no_anatomy": "the masks of the reported locations are empty",
    "no_productive_box": "no box meets all conditions",
    "empty_after_refine": "boxes meet all conditions, but refinement removes all their components",
    "no_grounded_label": "there is a mask, but it confirms none of the reported locations",
    "no_name": "there is a mask, but no valid location names it",
    "no_heart": "the heart mask is empty",
}
"""Reasons why a finding has no mask, or an unused one."""

BOX_FAULTS = {
    "anatomy": "IoU with the location",
    "conf": "confidence",
    "signal": "anomalous share",
    "size": "IoU with a lung",
    "zero_area": "no area",
    "empty_after_refine": "nothing left to mask",
}
"""The conditions of a box, by the names of ``labels.BOX_CONDITIONS``."""

PAIR_REASONS = {
    "ungrounded_sibling": "another finding of that name inside the location was not confirmed",
    "several_candidates": "the report offers several explanations",
    "several_types": "findings of several types share the instruction",
    "conflicting_answer": "the same instruction would have different answers",
    "related_term": "the report has a term related to it",
    "neither_affirmed_nor_denied": "the report names it without affirming or denying it",
    "section_silent": "the section says nothing about lungs or pleura except comparisons",
    "not_understood": "the section holds too many unknown words (dataset.unknown_words_max) for its silence to count",
    "no_empty_location": "no location is free of findings, masks and blocks",
    "heart_affirmed_or_hedged": "the report affirms or hedges a large heart",
    "wide_heart": "the cardiothoracic ratio is above dataset.ctr_negative_max or unknown",
    "same_text": "the instruction already has a different answer in this study",
    "other_image": "another image of the study carries this negative",
}
"""Reasons why a pair was not made."""


def meaning(code: str, words: dict[str, str]) -> str:
    """Return "code: what it means", or the bare code if it has no entry."""
    return f"{code}: {words[code]}" if code in words else code
