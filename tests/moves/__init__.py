"""Moves of servers between hosts, with the real conductor, workers and fake hypervisors in one thread."""
