"""Tests, by layer; functional/ runs the real processes."""
