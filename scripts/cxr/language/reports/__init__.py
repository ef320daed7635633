"""Extraction of findings from reports. Each finding that is affirmed or denied becomes a record, called a tuple."""
