"""The process ``slotferry migrator``, which makes copies by the replication stream for topom.

It dials topom, registers, and is told which copies to make (:mod:`slots.messages.copies`). It decides nothing: topom
chooses source, target and slots, makes both servers ready, and hands the slots over. When the stream to topom is lost,
all copies end.

- the process: :mod:`~migrator.process.process`; its settings: :mod:`~migrator.process.settings`, and
  ``configs/migrator.toml``; as topom's own child: :mod:`~migrator.process.child`;
- the stream to topom: :mod:`~migrator.process.stream`;
- what topom asks for: :mod:`~migrator.process.copies`.
"""
