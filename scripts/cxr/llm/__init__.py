"""Language models for any stage: questions, answer schemas, retries, and a model inside the job or on a server.

The stages define their own prompts and answer checks. ``asking`` asks, retries and quarantines; ``guards`` prevents
prompt injection; ``server`` keeps patients' data inside the private network.
"""
