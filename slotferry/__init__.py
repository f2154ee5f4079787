"""The one command, ``slotferry``: servers to run, a throw-away cluster, the demo, and the operator's verbs.

The verbs are thin: each is a call of topom's HTTP API (:mod:`slotferry.client`) and a table or JSON made of the answer.
"""

__version__ = "0.1.0"
