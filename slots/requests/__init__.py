"""Requests in bytes: where their arguments are, what their commands are, which are keys, without a Python object.

The proxy reads what its clients send by this, and the migrator what a master sends its replicas. Compiled modules use
it through the ``.pxd`` files.

To change

- how a request is found, and what is malformed: :mod:`~slots.requests.parsing`;
- what is known of a command: :mod:`~slots.requests.commandlookup`, made of :mod:`slots.commands`;
- where a request's keys are, if its arguments say so: :mod:`~slots.requests.keyplaces`;
- how a stream of requests is read by Python: :mod:`~slots.requests.reading`; only those with keys of wanted slots:
  :mod:`~slots.requests.wanted`.
"""
