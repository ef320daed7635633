"""The stage medground_sources: reads each source into shards of images and masks."""
