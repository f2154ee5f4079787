from proxy.engine.prefix import Prefix
from slots.requests.commandlookup import CommandLookup

def real_request(lookup: CommandLookup, prefix: Prefix, data: bytes) -> bytes | None: ...
