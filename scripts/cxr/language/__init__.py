"""The stages that read texts, on which every system stands."""
