"""Chaos on the real thing: a load of all operations on a cloud of many processes, any of which dies at any time.

Which process is struck when, and what users ask for, comes from a seed; what happens meanwhile does not. At the end
all faults stop, everything settles, and the audit is clean.
"""
