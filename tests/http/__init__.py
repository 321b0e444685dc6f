"""Tests of the HTTP API, through its WSGI interface."""
