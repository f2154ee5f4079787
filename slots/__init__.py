"""What proxy, migrator and topom share: slot functions, the slot table, slot states, commands, requests in bytes; how
settings are read; the messages between the processes.

Nothing here talks to a server, and nothing here imports another of the project's folders.
"""
