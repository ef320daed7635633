"""Vision-language models: tuning and asking them, for the questions of any system.

``conventions`` and ``reading``: how models write boxes; ``families``: the architectures; ``tuning`` and ``answers``:
the two stages.
"""
