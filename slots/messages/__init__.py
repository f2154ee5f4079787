"""What the processes tell each other: each message is one frozen object, defined here and nowhere else.

Three conversations, a module each:

- :mod:`~slots.messages.control`: the control stream between a proxy and topom;
- :mod:`~slots.messages.copies`: the stream between a migrator and topom;
- :mod:`~slots.messages.channel`: the channel between a proxy's supervisor and one of its workers.

Each direction has a union of its messages and a function that parses them. A message is checked where it comes in, and
again where it is made: whoever sends one that breaks its own rules has a fault. What only passes through is left to
those who read it: the content of a slot table to :mod:`slots.table`, settings to the process they are of.
"""
