"""The Promela models of ``doc/model``, checked by spin."""
