"""Reports into findings: the section to use, its sentences, and one tuple per finding that is affirmed or denied."""
