"""The vocabulary that proxy, migrator and topom share: slot functions, the slot table, slot states, commands.

Nothing here talks to a server, and nothing here imports another of the project's folders.
"""
