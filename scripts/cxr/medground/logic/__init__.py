"""The logic of queries: atoms, which are statements about a region, and whether a query has exactly one answer."""
