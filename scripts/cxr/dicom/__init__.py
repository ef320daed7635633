"""Reading pixel values from image files (DICOM, PNG, JPEG), and writing DICOM segmentations."""
