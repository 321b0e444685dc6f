"""The documentation says what is there."""
