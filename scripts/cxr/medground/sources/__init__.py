"""The stage medground_sources, which reads each source into shards of images and masks."""
