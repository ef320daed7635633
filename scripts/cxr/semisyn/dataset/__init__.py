"""The dataset stage: exports edited images and their boxes in several dataset sizes, box shapes and file formats."""
