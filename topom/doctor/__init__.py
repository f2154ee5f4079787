"""What will hurt, before it does: settings and states of servers, proxies and topom that lead to trouble.

What hurts already is said by other parts, as records of :mod:`topom.reasons`; :mod:`~topom.doctor.waits` takes those
over. All other findings are about what is still well.

May import: reasons, errors, cluster, servers, proxies.

To change

- what there is to find, of one subject: the module of its name, such as :mod:`~topom.doctor.memory`. It has
  ``RULES``, and ``check``, a pure function of the facts. ``scripts/doctor-docs`` writes ``docs/findings.md`` from them;
- what a rule and a finding consist of: :mod:`~topom.doctor.findings`;
- what is known when the checks run: :mod:`~topom.doctor.facts`; what a server is asked: :mod:`~topom.doctor.asking`;
  what is read on topom's own machine: :mod:`~topom.doctor.machine`;
- how many servers are asked at once, and how long all of it may take: :mod:`~topom.doctor.examining`.

What cannot be seen is not guessed: a check that lacks a fact finds nothing.
"""
