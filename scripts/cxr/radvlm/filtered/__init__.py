"""The stage radvlm_filtered: reports and phrases as single-image text."""
