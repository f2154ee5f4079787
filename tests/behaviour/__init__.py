"""What the whole of Slotferry does when something is changed or breaks, as features that a person can read.

Begin with ``test_features.py``. Its sentences are made of steps: :mod:`tests.behaviour.given` (how things are),
:mod:`tests.behaviour.when` (what people do, or what breaks) and :mod:`tests.behaviour.then` (what has to be true).
"""
