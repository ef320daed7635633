"""Initial weights of a tiny model (``init`` of its engine): modules found by name, with ``load(folder)``.

``load`` changes the small random model in the folder.
"""
