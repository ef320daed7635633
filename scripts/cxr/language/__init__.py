"""Stages that read radiology reports. All systems of the pipeline (ILS, RadVLM and others) use them."""
