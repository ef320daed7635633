"""The logic of queries: atoms with three values, scenes, and which queries are decidable."""
