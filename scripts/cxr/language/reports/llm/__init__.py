"""The paper's engine. One language model extracts findings (Figure 9), and another maps their locations (Figure 10)."""
