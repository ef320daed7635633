"""Language models for all stages: questions, answer schemas, retries, and a model inside the job or on a server.

Each stage defines its prompts and checks of answers. ``asking`` asks questions, and asks again if an answer is invalid.
``guards`` prevents prompt injection. ``server`` keeps patients' data inside the private network.
"""
