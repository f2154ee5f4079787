"""The processes that make copies by the replication stream (:mod:`migrator.process`), as topom sees them.

topom's own machine carries no data if a migrator runs elsewhere: then the child of this process is not used.

May import: reasons, errors.

To change

- who is registered, and what becomes of what it had: :mod:`~topom.migrators.members`;
- which migrator makes a copy: :mod:`~topom.migrators.choosing`;
- what topom asks of a copy: :mod:`~topom.migrators.copies`; which copies share a stream, and who waits for whom:
  :mod:`~topom.migrators.gathering`;
- how fast all copies together go: :mod:`~topom.migrators.members`, :mod:`topom.migration.mover`;
- the migrator that topom starts itself: :mod:`~topom.migrators.child`;
- the stream: :mod:`topom.api.migrator_stream`; its messages: :mod:`slots.messages.copies`.
"""
