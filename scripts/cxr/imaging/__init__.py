"""The stages that look at pictures, on which every system stands."""
