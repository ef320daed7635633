"""The logic of queries: which regions have an attribute ("size:small"), and whether a query has exactly one answer."""
