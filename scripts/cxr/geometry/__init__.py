"""Image geometry: affine maps, turns, boxes (IoU, suppression, fusion, unions), masks and run-length encoding."""
