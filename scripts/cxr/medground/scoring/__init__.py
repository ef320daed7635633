"""Scoring: IoU and Semantic Sensitivity of a model's answers, beside baselines that never read the query."""
