"""The one command, ``slotferry``: servers to run, a throw-away cluster, the demo, and the operator's verbs.

The verbs are thin: each calls topom's HTTP API (:mod:`slotferry.client`) and prints the answer as a table or as JSON.
"""

__version__ = "0.2.0"
