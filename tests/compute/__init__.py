"""The worker: its partition, tracker, operations, audit and service."""
