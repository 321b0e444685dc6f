"""What the worker's options say, as one frozen record."""

from __future__ import annotations

import msgspec


class Partition(msgspec.Struct, frozen=True):
    """How each node's machine is divided, as the options of the same names have it.

    ``cpu_shared_set`` and ``cpu_dedicated_set`` are CPU lists as text; an empty one counts as unset. ``address`` is
    that of the host, which is told to people.
    """

    cpu_shared_set: str | None = None
    cpu_dedicated_set: str | None = None
    cpu_allocation_ratio: float = 4.0
    memory_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_memory_mb: int = 0
    reserved_disk_gb: int = 0
    reserved_huge_pages: tuple[str, ...] = ()
    pack: bool = False
    address: str | None = None


class Settings(msgspec.Struct, frozen=True):
    """Times are in seconds.

    ``stop_wait``: how long a stop lets running operations go on. ``start_wait``: how long a start waits for the
    first reconciliation before it takes work. ``destroy_tries``: how often the guest of a failed operation is
    removed before its claim is left over. ``patience``: how long an image store that does not answer is tried.
    """

    host: str
    nodes: tuple[str, ...]
    state_path: str
    partition: Partition = Partition()
    heartbeat: float = 3.0
    audit_interval: float = 60.0
    max_operations: int = 64
    stop_wait: float = 10.0
    start_wait: float = 60.0
    destroy_tries: int = 3
    patience: float = 60.0
