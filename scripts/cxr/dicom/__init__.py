"""Reading image files (DICOM, PNG, JPEG) to pixel values, and writing DICOM segmentations."""
