"""The stage medground_dataset, which joins the verified queries of all sources."""
