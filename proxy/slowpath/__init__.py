"""The slow path: rare commands in plain Python. Each family of commands has a module, and the engine asks
``dispatch``."""
