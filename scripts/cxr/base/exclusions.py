"""Reason codes for excluding an image or a study at a stage, each with a sentence for the person who can fix it."""

STAGES = ("cohort", "frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks", "dataset")
"""The stages that keep a ledger, in the order in which they process an image."""

REASONS: dict[str, str] = {
    # cohort
    "missing_file": "the manifest or record list names a file that does not exist, or no longer exists",
    "unreadable_file": "the file exists but cannot be opened",
    "empty_file": "the file has no bytes",
    "unreadable_header": "the header cannot be parsed",
    "not_dicom": "the file is neither DICOM, PNG nor JPEG",
    "wrong_modality": "the modality is not a radiograph",
    "wrong_body_part": "the body part examined is not the chest",
    "not_frontal": "the view is not PA or AP",
    "unknown_view": "neither the table nor the header gives the view",
    "too_small": "fewer pixels than a radiograph can have",
    "listed": "listed in cohort.exclude",
    "failed_quality_table": "a CheXStruct quality table fails the image",
    "duplicate_image": "several rows have the same image_id or image file",
    "bad_row": "the row cannot be read, lacks an identifier or contradicts another row",
    # frames
    "undecodable": "the pixel data cannot be decoded",
    "no_pixels": "the file holds no pixel data",
    "multi_frame": "more than one frame",
    "constant_image": "every pixel has the same value",
    "burned_in_text": "text that may identify a person is burned into the image",
    "not_selected": "another image of the same study was chosen",
    # reports
    "no_report": "the study has no report, or a text that does not describe the chest",
    "missing_report": "the study's report file is missing",
    "unreadable_report": "the report file cannot be opened, or is not text (PDF, Office, an image)",
    "not_english": "the report is not English; the engine rules reads only English (reports.engine: vllm may read it)",
    "too_long": "the report is longer, or has more findings, than reports.max_characters or max_findings allow",
    "empty_report": "the report has no text in any section that is used",
    "quarantined": "the engine's answer breaks the schema",
    # organs, anomaly, anatomy, boxes
    "not_a_radiograph": "the image is not an upright chest X-ray: it is rotated or inverted, or shows something else",
    "heart_on_right": "the heart is on the wrong side: the image is mirrored, or the patient has dextrocardia",
    "no_lungs": "a lung mask is empty or too small",
    "cut_off": "the lung fields are not completely in the image",
    "extreme_contrast": "the image has almost no contrast inside the chest",
    "bad_map": "the anomaly map holds values that are not finite",
    "missing_anatomy": "too few anatomy masks are non-empty",
    "organ_disagreement": "the organ masks of x and of the edited image disagree",
    "engine_failure": "the engine failed on this image",
    # semisyn_healthy
    "not_pa": "the view is not one of semisyn.healthy.views",
    "not_erect": "the patient's position is unknown, or not one of semisyn.healthy.positions",
    "in_reference": "the image, or another of its patient, is in a reference that is tested on or gave the priors",
    "other_split": "its patient is in a split that semisyn.healthy.splits leaves out",
    "has_finding": "the labels or the report state a finding, or do not state that there is none",
    "has_device": "the labels or the report name a device",
    "not_labelled": "the table of labels or scores has no usable row of it, or its report cannot be judged",
    "classifier_positive": "the classifier sees a finding, or the heart is too wide",
    "no_heart": "the heart's mask is empty",
    "lungs_overlap": "the boxes of the lungs overlap, or lie on the wrong sides",
    # MedGround's sources, regions and queries
    "shape_mismatch": "the mask, or the image that boxes were drawn on, has another size than the image",
    "unknown_label": "the mask holds values, or the table a class or label, that the source does not know",
    "empty_mask": "no pixel is foreground",
    "full_mask": "every pixel is foreground",
    "inverted_mask": "the mask covers so much of its image that it seems inverted (medground.sources.most_foreground)",
    "duplicate_of_test": "an image of the test split has the same pixels",
    "no_regions": "no component is large enough",
    "no_query": "no query about the image can be decided, or none passed the verification",
    # RadVLM's sources
    "no_labels": "the source has no label of the image",
    "no_boxes": "the source has no box of the image",
    "no_area": "a box has no area inside its image, or has a coordinate that is not a number",
    "no_split": "the split of the image is unknown",
    "split_conflict": "its patient is in another split of the mix too",
    "no_image": "the source names an image that is not in its tables of images",
    # RadVLM's single-image text
    "nothing_left": "every sentence of the text needs another image, or describes nothing on this one",
    # RadVLM's conversations
    "too_few_facts": "the facts of the image allow fewer than 5 rounds",
    "bad_form": "the rounds of the conversation do not alternate, are too few or too many, or one is empty or repeated",
    "foreign_box": "an answer gives a box that is no box of what it speaks of",
    "ungrounded": "no box is asked for and given in a grounded conversation",
    "unsupported_statement": "an answer states something without a fact, or denies what a fact affirms",
    "comparison": "an answer compares with another examination",
    "date_or_name": "an answer names a date or a person",
    "order_to_reader": "an answer tells the reader what to do",
    # dataset
    "no_pairs": "no instruction-answer pair could be made",
    # semisyn: jobs
    "no_cell": "a box holds no cell of the model's latent grid",
    "bad_picture": "the edited image has another shape, or values that are not numbers",
    "nothing_changed": "the edit changes less than one per cent of the boxes visibly",
    "leaked": "the edit changes more outside of the boxes than semisyn.editing.max_leak allows",
    "no_room": "the lungs or the heart leave no room for a box of the finding where its prompt wants it",
}
"""Reason codes of the ledgers and what each means to a reader."""
