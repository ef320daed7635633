"""Language models for all stages: questions, answer schemas, retries, and a model inside the job or on a server.

The stages define their prompts and answer checks. ``asking`` asks questions, retries and quarantines; ``guards``
prevents prompt injection; ``server`` keeps patients' data inside the private network.
"""
