"""Readers tell edited X-rays from real ones, and name their findings (the paper's appendix A.3)."""
