"""Measurements that are run by hand, with other programs in the same run for comparison. README.md explains them.

Nothing here is part of the product or of its tests: times depend on the machine.
"""
