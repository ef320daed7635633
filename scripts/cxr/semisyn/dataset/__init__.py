"""The dataset of SemiSynCXR: edited images with their boxes, in several sizes, conventions and formats."""
