"""The dataset stage: exports edited images and their boxes in several sizes, box conventions and formats."""
