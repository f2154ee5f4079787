"""Load: how much there is to do, by slot, group, server, proxy and user, as the proxies count it.

May import: reasons, errors, periodic, cluster, proxies.

It is kept in memory only, by the topom that leads, and begins anew with each term. Only the last day by minute goes
from term to term: topoms that follow have it, too.

To change

- how often proxies are asked, how much they may tell, and which answers are believed: :mod:`~topom.load.asking`;
- what is kept, and what planners see of it: :mod:`~topom.load.book`;
- how things of one kind are kept by name: :mod:`~topom.load.measured`; the last day by minute: :mod:`~topom.load.day`;
  how one topom tells it to another: :mod:`~topom.load.minutes`; series of minutes: :mod:`~topom.load.history`;
- which keys are hot: :mod:`~topom.load.hotkeys`; which requests took long or carried much:
  :mod:`~topom.load.notable`;
- how rates decay: :mod:`slots.slotrates`; the messages: :mod:`slots.messages.load`.
"""
