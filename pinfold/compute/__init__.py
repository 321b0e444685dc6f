"""One worker per host: pins guests, runs them, and has no database."""
