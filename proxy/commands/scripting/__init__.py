"""Scripts and functions: what a worker knows of them, where they are loaded, which may run while slots move.

Once the engine knows that a server has a script, it sends EVALSHA by itself (:mod:`proxy.engine.loaded`).
"""
