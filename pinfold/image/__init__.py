"""Where snapshots live."""
