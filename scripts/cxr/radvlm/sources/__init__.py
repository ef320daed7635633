"""Stage radvlm_sources: facts and pictures of each source in one form."""
