"""The image as it would look without a lesion, and the map of what differs."""
