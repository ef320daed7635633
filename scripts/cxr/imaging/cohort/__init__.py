"""Which images there are, which of them are frontal chest X-rays, and where each belongs."""
