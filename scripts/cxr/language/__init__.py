"""Stages that read radiology reports. Their output serves all parts of the pipeline, such as ILS and RadVLM."""
