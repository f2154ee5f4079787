"""Simulation: the decisions about slots that move by themselves, over a fleet that is only numbers, for hours or weeks.

What decides is the code that decides in topom (:mod:`topom.balance.deciding`, which plans by
:mod:`topom.balance.planners.load`). What is made up is the traffic, the sizes, and the time that moves take.

To change

- what a file may say: :mod:`~topom.balance.simulation.scenario`;
- how traffic goes up and down: :mod:`~topom.balance.simulation.traffic`;
- how time passes, and how moves arrive: :mod:`~topom.balance.simulation.running`;
- with what it is compared: :mod:`~topom.balance.simulation.bound`.
"""
