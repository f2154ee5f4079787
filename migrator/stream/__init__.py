"""Copies slots by the replication stream of their source, while clients stay there.

Which server is followed: ``choosing`` (a replica, or the source), ``standing`` and ``direct`` (what proves that a
server can be), ``followed`` (one after the other).

From there to the disk, in a thread of its own: ``sourceconnection`` (a connection that blocks), ``handshake``
(what is said until the snapshot begins), ``link`` (follows one source), ``spool`` (keeps what comes; ``space``,
``snapshotfile`` and ``streamfile`` are its files, ``waking`` how its readers wait), ``errors``. Readers of a snapshot
are threads, those of a stream tasks of an event loop::

    spool = Spool(folder, most_bytes)
    link = Link(address, access, spool, name, run_id, history)
    link.start()
    replication_id, offset, run_id = await link.begun()
    reader = spool.reader()  # one for each copy; for a thread: reader.readinto(buffer), 0 at the end
    reader.leave_snapshot()  # it has read it
    while True:
        await reader.more(offset)
        offset += len(reader.read(offset, most))
        reader.release(offset)  # what is before it is not read again
    reader.close()
    await asyncio.to_thread(link.close)
    spool.close()

Of the source's snapshot, ``snapshotfilter`` makes ``batches`` of commands for each copy, and names the keys whose
values do not go in one command. ``values`` makes these by commands of bounded size. Where the target cannot read the
source's format, ``valuecommands`` writes small ones straight from the snapshot's bytes, and ``words`` says what the
target can be told. ``openbatch`` is a batch while keys come into it, ``output`` the memory of its commands.

From there to the target: ``changes`` (what each command of the stream means for a copy), ``deadlines``, ``applying``
(each batch once), ``copying`` (what a copy has yet to write), ``following`` (reads the spool for a copy).

Together: ``sourcestream`` (one link for several copies), ``running`` (one copy, from its beginning to its switch).
"""
