"""The reader study: experts tell edited X-rays from real ones and name the findings (the paper's appendix A.3)."""
