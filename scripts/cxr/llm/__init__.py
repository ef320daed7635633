"""Language models for the stages that ask one: questions, schemas, retries, a model in the job or on a server.

Below the stages, beside none of them: what is asked, and what an answer must say, is the stages' own. ``asking`` asks,
asks again and quarantines; ``guards`` keeps texts data; ``remote`` keeps patients' data here.
"""
