"""cxr-ils: chest X-rays and their reports become an instruction-guided lesion segmentation dataset."""
