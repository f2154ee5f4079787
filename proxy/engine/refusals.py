"""Errors that the engine gives in several places."""

from slots.reserved import REFUSAL

CROSSSLOT = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n"
FAILED = b"-ERR the proxy failed to run this command; its log says why\r\n"
LEFT = b"-TRYAGAIN the connection was closed at the client's side while the request was held; nothing was run\r\n"
NO_SERVER = b"-ERR no group has a server yet; add one with 'slotferry group add'\r\n"
OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this request\r\n"
OWN_KEYS = b"-%b\r\n" % REFUSAL.encode()
