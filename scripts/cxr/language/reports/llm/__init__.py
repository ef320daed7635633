"""The paper's engine: a language model structures each section (Figure 9), another maps each place once (Figure 10)."""
