"""The forecast of a run: what goes in, what each system will make of it, what it costs, and what would be refused.

Counts are those of finished tables where there are any; else they are estimated from the user's tables, from samples of
headers and reports, and from the yields in ``resources/costs.yaml``.
"""
