"""The worker process: clients, the slot table in force, and all that serves a request.

May import: settings, channel, clusterview, listening, engine, servers, moving, commands.

To change

- how the parts are put together: :mod:`~proxy.worker.worker`;
- what happens with a new identity or table: :mod:`~proxy.worker.inforce`, :mod:`~proxy.worker.routing`,
  :mod:`~proxy.worker.holding` (locked slots), :mod:`~proxy.worker.lostconnections`;
- how clients come and leave: :mod:`proxy.worker.clients`; what is read from replicas: :mod:`proxy.worker.replicas`;
- what it tells of itself: :mod:`~proxy.worker.figures`; of its traffic: :mod:`~proxy.worker.loads`; what it asks other
  workers: :mod:`~proxy.worker.asking`;
- its files and its turns on a processor: :mod:`~proxy.worker.openfiles`, :mod:`~proxy.worker.scheduling`.
"""
