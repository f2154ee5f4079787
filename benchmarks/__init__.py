"""Measurements that are run by hand, beside other programs in the same run; README.md says how to read them.

Nothing here is part of the product or of its tests: what is timed depends on the machine.
"""
