"""Real processes, over HTTP: every test runs on the all-in-one and on one process per service."""
