"""What a tiny model begins with (``init`` of its engine): a module of the name, with ``load(folder)``.

``load`` changes the small random model that lies in the folder.
"""
