"""A fake node's guests on disk, each a folder::

    <state>/<node>/guests/<instance>/guest.json   what the guest is
                                     disk         a raw, sparse image; tests and people may read and write it
                                     console.log  what it printed; likewise
    <state>/<node>/shared                         its disks can be reached by other nodes that have this too

One that was put aside by a move on its own node is a folder of the same form in ``aside/``.

A guest is built in ``building/`` and moved into place whole, so that a kill -9 at any instant leaves the
guest as before or as after. One that replaces another passes through ``replacing/<instance>``: from there on
the new one is the guest, and whoever locks the node next finishes the move.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from pinfold import durable
from pinfold.model.numa import Placement
from pinfold.runtime import Runtime
from pinfold.virt.driver import DriverError, GuestSpec, PowerState

CONSOLE_KEPT = 64 * 1024
"""Bytes of console output that are kept."""

PIECE = 1024**2
"""Bytes of a disk that are read at once."""

LEAST = 64 * 1024
"""Bytes of a disk that are always read: an image service takes one without data for missing."""


class Record(msgspec.Struct, frozen=True):
    """What stands in guest.json. Sizes in MB and GB."""

    instance: str
    name: str
    node: str
    power_state: PowerState
    vcpus: int
    memory_mb: int
    disk_gb: int
    placement: Placement | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def guest_folder(state_path: str, node: str, instance: str) -> str:
    """Where a guest's files are."""
    return os.path.join(state_path, node, "guests", instance)


class GuestFolder:
    """The guests of one node. All methods want to be called within ``locked``."""

    def __init__(self, runtime: Runtime, state_path: str, node: str) -> None:
        self._runtime = runtime
        self._root = os.path.join(state_path, node)
        folders = [
            os.path.join(self._root, name)
            for name in ("guests", "building", "replacing", "aside", "shut_out")
        ]
        self._guests, self._building, self._replacing, self._aside, self._shut_out = folders
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        self._lock = durable.FolderLock(runtime, os.path.join(self._root, "lock"))
        self._known: dict[str, tuple[tuple[int, int, int], Record]] = {}
        with self.locked():
            durable.remove_abandoned(self._building)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among all drivers of the node, with every guest in its place."""
        with self._lock:
            # Nobody is in the middle of a replacement while we have the lock, but may have died in one.
            for instance in os.listdir(self._replacing):
                self._finish_replacing(instance)
            yield

    def all(self) -> list[Record]:
        """Every guest, in order of instance."""
        known = {}
        for instance in sorted(os.listdir(self._guests)):
            record = self._load(instance)
            if record is not None:
                known[instance] = record
        for gone in self._known.keys() - known.keys():
            del self._known[gone]
        return list(known.values())

    def get(self, instance: str) -> Record | None:
        """One guest, or None."""
        return self._load(instance)

    def _load(self, instance: str) -> Record | None:
        path = os.path.join(self._guests, instance, "guest.json")
        try:
            status = os.stat(path)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            known = self._known.get(instance)
            if known is not None and known[0] == seen:
                return known[1]
            with open(path, "rb") as file:
                record = _decode(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise DriverError(f"The guest record {path} cannot be read: {error}") from error
        self._known[instance] = (seen, record)
        return record

    def save(self, record: Record) -> None:
        """Change a guest's record."""
        path = os.path.join(self._guests, record.instance, "guest.json")
        durable.replace(path, _encode(record))
        self._known.pop(record.instance, None)

    def begin(self, instance: str) -> Build:
        """A folder to build a guest in; it is removed when the builder dies."""
        path = os.path.join(self._building, f"{instance}.{self._runtime.new_id()}")
        os.mkdir(path)
        return Build(path, durable.claim(path))

    def commit(self, build: Build, record: Record) -> None:
        """Make what was built the guest, instead of one that is there."""
        durable.replace(os.path.join(build.path, "guest.json"), _encode(record))
        self._known.pop(record.instance, None)
        target = os.path.join(self._guests, record.instance)
        if not os.path.lexists(target):
            os.rename(build.path, target)
        else:
            os.rename(build.path, os.path.join(self._replacing, record.instance))
            self._finish_replacing(record.instance)
        build.close()

    def move_to(self, other: GuestFolder, instance: str) -> None:
        """Give a guest to another node, which is locked too and has none of it."""
        self._known.pop(instance, None)
        os.rename(os.path.join(self._guests, instance), os.path.join(other._guests, instance))

    def admit(self, instance: str, admitted: bool) -> None:
        """Whether other nodes may give this guest to this one."""
        path = os.path.join(self._shut_out, instance)
        if not admitted:
            durable.replace(path, b"")
        elif os.path.exists(path):
            os.unlink(path)

    def admits(self, instance: str) -> bool:
        """Whether they may; until something is said they may."""
        return not os.path.exists(os.path.join(self._shut_out, instance))

    def share(self, shared: bool) -> None:
        """Let other nodes reach the disks of this one, or not."""
        path = os.path.join(self._root, "shared")
        if shared:
            durable.replace(path, b"")
        elif os.path.exists(path):
            os.unlink(path)

    def shares(self, instance: str) -> bool:
        """Whether other nodes can reach the guest's disk."""
        return os.path.exists(os.path.join(self._root, "shared")) and os.path.exists(self.disk(instance))

    def put_aside(self, instance: str) -> None:
        """Keep the guest as it is out of the way, if it is there and none is kept already."""
        aside, guest = os.path.join(self._aside, instance), os.path.join(self._guests, instance)
        if os.path.lexists(guest) and not os.path.lexists(aside):
            self._known.pop(instance, None)
            os.rename(guest, aside)

    def take_back(self, instance: str) -> bool:
        """Let the guest that was put aside take its place again; whether there was one."""
        aside = os.path.join(self._aside, instance)
        if not os.path.lexists(aside):
            return False
        self._known.pop(instance, None)
        os.rename(aside, os.path.join(self._replacing, instance))
        self._finish_replacing(instance)
        return True

    def forget_aside(self, instance: str) -> None:
        """Remove the guest that was put aside, if there is one."""
        self._bury(os.path.join(self._aside, instance), instance)

    def _finish_replacing(self, instance: str) -> None:
        self._known.pop(instance, None)
        self._bury(os.path.join(self._guests, instance), instance)
        os.rename(os.path.join(self._replacing, instance), os.path.join(self._guests, instance))

    def remove(self, instance: str) -> bool:
        """Remove a guest, and one of it that was put aside; whether it was there."""
        self._known.pop(instance, None)
        self.forget_aside(instance)
        return self._bury(os.path.join(self._guests, instance), instance)

    def _bury(self, path: str, instance: str) -> bool:
        grave = os.path.join(self._building, f"{instance}.{self._runtime.new_id()}")
        try:
            os.rename(path, grave)
        except FileNotFoundError:
            return False
        durable.remove_tree(grave)
        return True

    def disk(self, instance: str) -> str:
        """The path of a guest's disk."""
        return os.path.join(self._guests, instance, "disk")

    def console(self, instance: str) -> str:
        """The path of a guest's console output."""
        return os.path.join(self._guests, instance, "console.log")


class Build:
    """A guest that is being built; ``discard`` is safe after it was committed."""

    def __init__(self, path: str, held: int) -> None:
        self.path = path
        self._held: int | None = held

    def fill(self, spec: GuestSpec, image: Iterable[bytes]) -> None:
        """Make the disk from ``image``. Raises DriverError when it is larger than ``disk_gb``."""
        bound = spec.disk_gb * 1024**3 if spec.disk_gb else None
        disk = os.open(os.path.join(self.path, "disk"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            durable.write_sparse(disk, image if bound is None else _bounded(image, bound, spec))
            if bound is not None:
                os.ftruncate(disk, bound)
        finally:
            os.close(disk)

    def share(self, disk: str) -> None:
        """Have the same disk as another guest: it is there until both are gone."""
        path = os.path.join(self.path, "disk")
        if os.path.lexists(path):
            os.unlink(path)
        os.link(disk, path)

    def close(self) -> None:
        """It is no longer being built."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def discard(self) -> None:
        """Remove what is not committed."""
        if self._held is not None:
            durable.remove_tree(self.path)
            self.close()


def _bounded(image: Iterable[bytes], bound: int, spec: GuestSpec) -> Iterator[bytes]:
    size = 0
    for piece in image:
        size += len(piece)
        if size > bound:
            raise DriverError(
                f"The image does not fit the disk of {spec.instance}: more than {spec.disk_gb} GB."
            )
        yield piece


def write_console(path: str, text: str) -> None:
    """Append to a console, keeping its last CONSOLE_KEPT bytes."""
    with open(path, "ab") as file:
        file.write(text.encode())
        size = file.tell()
    if size > 2 * CONSOLE_KEPT:
        with open(path, "rb") as file:
            file.seek(size - CONSOLE_KEPT)
            kept = file.read()
        durable.replace(path, kept[kept.find(b"\n") + 1 :])


def read_console(path: str) -> str:
    """What is kept of a console; empty when nothing was written."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def disk_pieces(disk: int, *, trim: bool) -> Iterator[bytes]:
    """The content of an open disk; ``trim`` leaves out the hole at its end."""
    size = os.fstat(disk).st_size
    end = max(_data_end(disk), min(size, LEAST)) if trim else size
    offset = 0
    while offset < end:
        piece = os.pread(disk, min(PIECE, end - offset), offset)
        if not piece:
            return
        yield piece
        offset += len(piece)


def _data_end(disk: int) -> int:
    end = 0
    while True:
        try:
            end = os.lseek(disk, os.lseek(disk, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                return end
            raise
