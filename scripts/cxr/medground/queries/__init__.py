"""The stage medground_queries: candidate queries, each with an image, a text and the answer's boxes."""
