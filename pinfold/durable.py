"""Files that survive a kill -9 at any instant: replaced whole, locked by the kernel, written sparsely.

Used by what keeps its things in a folder: ``image.files`` and ``virt.fake``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable
from types import TracebackType

from pinfold.runtime import Runtime

BLOCK = 64 * 1024
_ZEROS = bytes(BLOCK)


class FolderLock:
    """Excludes threads (fairly) and other processes; the kernel frees it when its holder dies.

    Threads wait for the runtime's lock, which green threads may; only for another process does one wait in
    the kernel, so hold it for short sections that do not sleep.
    """

    def __init__(self, runtime: Runtime, path: str) -> None:
        self._threads = runtime.lock()
        self._path = path
        self._held = -1

    def __enter__(self) -> FolderLock:
        self._threads.__enter__()
        try:
            self._held = hold(self._path)
        except BaseException:
            self._threads.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        os.close(self._held)
        self._threads.__exit__(kind, error, where)


def hold(path: str) -> int:
    """Open or create ``path`` and wait for its lock; the descriptor that holds it."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
    except BaseException:
        os.close(held)
        raise
    return held


def claim(path: str) -> int:
    """A descriptor that marks the folder or file ``path`` as being worked on until it is closed.

    Raises BlockingIOError when somebody else has marked it.
    """
    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(held)
        raise
    return held


def remove_abandoned(folder: str) -> list[str]:
    """Remove the entries of ``folder`` that nobody has claimed; the names of those removed."""
    removed = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            held = claim(path)
        except (BlockingIOError, FileNotFoundError):
            continue
        try:
            remove_tree(path)
            removed.append(name)
        finally:
            os.close(held)
    return removed


def remove_tree(path: str) -> None:
    """Remove a file or folder, if it is there."""
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except NotADirectoryError:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:  # it has folders inside, or somebody removes it too
        shutil.rmtree(path, ignore_errors=True)


def replace(path: str, content: bytes, *, sync: bool = False) -> None:
    """Write ``path`` whole: readers see the old content or the new one. The caller excludes other writers.

    ``sync`` also outlasts a power cut.
    """
    fresh = path + ".new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o660)
    try:
        _write_all(descriptor, content, 0)
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(fresh, path)
    if sync:
        sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Make renames in ``path`` outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_sparse(descriptor: int, pieces: Iterable[bytes]) -> int:
    """Write ``pieces`` from the descriptor's start, blocks of zeros as holes; the size in bytes."""
    size = 0
    for piece in pieces:
        for start in range(0, len(piece), BLOCK):
            block = piece[start : start + BLOCK]
            if block != _ZEROS[: len(block)]:
                _write_all(descriptor, block, size + start)
        size += len(piece)
    os.ftruncate(descriptor, size)
    return size


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    written = os.pwrite(descriptor, content, offset)
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], offset + written)
