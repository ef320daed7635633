"""The dataset of instruction-answer pairs, made from the findings of reports and from lesion masks."""
