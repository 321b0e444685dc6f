"""Runs operations: the scheduler, the sweeper, and the only RPC face with a database."""
