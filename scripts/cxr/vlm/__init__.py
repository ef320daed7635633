"""Vision-language models: tuning and asking them, whatever system the questions come from.

``conventions`` and ``reading`` know how models write boxes, ``families`` the architectures, ``tuning`` and ``answers``
are the two stages.
"""
