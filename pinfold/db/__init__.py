"""The book: instances, claims, operations, and all that must not be lost."""
