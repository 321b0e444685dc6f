"""Each driver behind one face, for the contract's tests."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest

from pinfold.model.numa import PlacedCell, Placement
from pinfold.runtime import RealRuntime
from pinfold.virt.driver import Driver, GuestSpec
from pinfold.virt.fake import FakeDriver
from pinfold.virt.guests import guest_folder


class Hypervisor(Protocol):
    """One hypervisor with the nodes ``a`` and ``b``, which outlives the driver's process."""

    def driver(self) -> Driver:
        """A new connection, as a worker that starts again has."""

    def image(self) -> bytes:
        """An image that its guests can boot."""

    def write_disk(self, instance: str, offset: int, content: bytes) -> None:
        """What the system of a guest on ``a`` would write."""


class FakeHypervisor:
    """Guests in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def driver(self) -> Driver:
        return FakeDriver(RealRuntime(), "host-1", ["a", "b"], str(self._root))

    def image(self) -> bytes:
        return bytes(range(256)) * 512

    def write_disk(self, instance: str, offset: int, content: bytes) -> None:
        with open(os.path.join(guest_folder(str(self._root), "a", instance), "disk"), "r+b") as disk:
            disk.seek(offset)
            disk.write(content)


@pytest.fixture(params=["fake"])
def hypervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Hypervisor:
    """A driver that joins the project joins these parameters."""
    assert request.param == "fake"
    return FakeHypervisor(tmp_path / "host-1")


@pytest.fixture
def driver(hypervisor: Hypervisor) -> Driver:
    """A connection to ``hypervisor``."""
    return hypervisor.driver()


def pinned(*pins: int, cell: int = 0, memory_mb: int = 64) -> Placement:
    """A guest cell with one vCPU on each of ``pins``."""
    return Placement((PlacedCell(0, cell, frozenset(), dict(enumerate(pins)), memory_mb),))


def spec(
    instance: str | None = None,
    *,
    node: str = "a",
    pins: Sequence[int] = (),
    memory_mb: int = 64,
    disk_gb: int = 1,
    placement: Placement | None = None,
) -> GuestSpec:
    """A small guest; ``pins`` are of cell 0."""
    instance = instance or str(uuid.uuid4())
    if pins:
        placement = pinned(*pins, memory_mb=memory_mb)
    return GuestSpec(instance, f"server-{instance[:8]}", node, len(pins) or 1, memory_mb, disk_gb, placement)
