"""The stage radvlm_filtered: edits reports and phrases so that they describe one image only."""
