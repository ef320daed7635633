"""Reading DICOM files, and writing DICOM segmentations."""
