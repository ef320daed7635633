"""Scoring: IoU and Semantic Sensitivity of a model's answers, compared with baselines that never read the query."""
