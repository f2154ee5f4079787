"""Proxies: which are members, what each has acknowledged, and what keeps a lost one from doing harm.

May import: reasons, errors, periodic, cluster, servers.

No two live proxies send a slot's commands to different masters (**one-owner**): a table holds once every member applies
it, is fenced, or has stood down.

To change

- when a proxy counts as lost, and what it registers with: :mod:`~topom.proxies.members`; what is known of one:
  :mod:`~topom.proxies.member`;
- what the barrier waits for, and how fences are put up: :mod:`~topom.proxies.barrier`;
- when a proxy that cannot be fenced counts as standing down: :mod:`~topom.proxies.standdown` (the rule),
  :mod:`~topom.proxies.lost` (asking for it);
- when a lost proxy is forgotten: :mod:`~topom.proxies.forgetting`; how an operator removes one:
  :mod:`~topom.proxies.removing`;
- what becomes of our own keys at servers: :mod:`~topom.proxies.oldmarks`, :mod:`~topom.proxies.ownkeys`;
- how tables are sent to them: :mod:`~topom.proxies.tableframes`; all messages: :mod:`slots.messages.control`;
- users of clients that topom keeps: :mod:`~topom.proxies.keptusers`;
- which proxies cluster clients are shown: :mod:`~topom.proxies.proxylist`.
"""
