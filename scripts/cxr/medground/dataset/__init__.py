"""The stage medground_dataset: joins the verified queries of all sources."""
