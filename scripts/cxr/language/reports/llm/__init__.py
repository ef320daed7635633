"""The paper's report engine: one language model structures sections (Figure 9), another maps locations (Figure 10)."""
