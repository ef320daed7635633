"""Language models for any stage: questions, answer schemas, retries, and a model inside the job or on a server.

The package knows no stage: the stages define their prompts and the checks of answers. ``asking`` asks, retries and
quarantines; ``guards`` prevents prompt injection; ``remote`` keeps patients' data inside the private network.
"""
