"""Helpers of stack.sh: configuration, private servers, progress, the story. Not part of the product."""
