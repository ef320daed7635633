"""The stage medground_sources: reads a declared source into shards of pictures and masks."""
