"""The stage radvlm_sources: facts and images of all sources in a common format."""
