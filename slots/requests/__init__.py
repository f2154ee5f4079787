"""Requests in bytes, read without a Python object: where their arguments are, what their commands are, which are keys.

The proxy reads what its clients send by this. Compiled modules use it through the ``.pxd`` files.

To change

- how a request is found, and what is malformed: :mod:`~slots.requests.parsing`;
- what is known of a command: :mod:`~slots.requests.commandlookup`, made of :mod:`slots.commands`;
- where a request's keys are, if its arguments say so: :mod:`~slots.requests.keyplaces`.
"""
