"""The settings file of each process: every setting with its default, its unit and what it is for.

`slotferry config` prints and checks such files. A test compares them with the classes that read them.
"""
