"""RadVLM: an instruction mix from many datasets, conversations, and an assistant that is tuned on them and scored."""
