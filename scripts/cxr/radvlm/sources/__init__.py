"""The stage radvlm_sources: reads the images of every source, and the facts about them, into a common format."""
