"""The stage medground_queries: candidates (image, query, answer boxes) in words."""
