"""Measurements of a running cloud."""
