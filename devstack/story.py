"""The story that every new cloud tells: where the CPUs of pinned servers go.

Each step's claims are checked; the first that does not hold ends the story with an error.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devstack.client import Client, Json, pins
from devstack.drawing import draw
from devstack.seed import IMAGE

FLAVORS = ("p8", "p4", "p2", "p1")


class Broken(Exception):
    """A claim of the story does not hold."""


def check(holds: object, claim: str, *seen: object) -> None:
    if not holds:
        raise Broken("\n".join([f"this does not hold: {claim}", *(f"  seen: {thing}" for thing in seen)]))


def write_faults(path: Path, *rules: Json) -> None:
    """Order faults; the file is replaced whole, since the hypervisor may read it at any time."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(list(rules)) + "\n")
    os.replace(beside, path)


class Story:
    """``home`` is the node where it begins."""

    def __init__(self, client: Client, faults: Path) -> None:
        self.client, self.faults = client, faults
        self.image = client.image_id(IMAGE)
        self.start = client.nodes()
        self.flavor, self.home = self._stage()
        self.letters: dict[str, str] = {}
        self.number = 0

    def _stage(self) -> tuple[str, str]:
        """The largest flavor, and a node which has room for it (twice, if there is no other node)."""
        twice = 1 if len(self.start) > 1 else 2
        for flavor in FLAVORS:
            for name, node in self.start.items():
                size = int(flavor[1:])
                rooms = sum((len(cell["dedicated"]) - len(cell["pins"])) // size for cell in node["cells"])
                if rooms >= twice:
                    return flavor, name
        raise Broken("no node has free dedicated CPUs for the story; delete some servers first")

    @contextmanager
    def step(self, text: str, node: str) -> Iterator[list[str]]:
        """One line: what was done, the node's pins before and after, how long it took, and notes."""
        self.number += 1
        before, began = draw(self.client.node(node), self.letters), time.monotonic()
        notes: list[str] = []
        yield notes
        took = time.monotonic() - began
        after = draw(self.client.node(node), self.letters)
        pictures = f"{node} {before} > {after}"
        print(f"{self.number:2} {text:27} {pictures} {took:5.2f} s  {'; '.join(notes)}", flush=True)

    def pinned(self, node: str, server: str | None = None) -> frozenset[int]:
        return pins(self.client.node(node), server)

    # Steps

    def boot(self, letter: str, text: str) -> tuple[str, frozenset[int]]:
        with self.step(text, self.home) as notes:
            zone = f"nova:{self.home}"
            server = self.client.boot(f"story-{letter}", self.flavor, self.image, availability_zone=zone)
            self.letters[server] = letter
            shown = self.client.wait(server, "ACTIVE")
            check(shown["OS-EXT-SRV-ATTR:host"] == self.home, f"{letter} runs on {self.home}", shown)
            held = self.pinned(self.home, server)
            check(len(held) == int(self.flavor[1:]), f"{letter} has {self.flavor[1:]} CPUs of its own", held)
            notes.append(f"on CPUs {_numbers(held)}")
        return server, held

    def resize(self, server: str) -> None:
        """Resize it, so that it holds two places; then go back: all is as it was."""
        other = next(iter(FLAVORS[FLAVORS.index(self.flavor) + 1 :]), None)
        if other is None or len(self.start) < 2:
            return
        held = self.pinned(self.home, server)
        with self.step(f"resize {self.letters[server]} to {other}", self.home) as notes:
            self.client.act(server, "resize", {"flavorRef": other})
            shown = self.client.wait(server, "VERIFY_RESIZE")
            host = shown["OS-EXT-SRV-ATTR:host"]
            new = self.pinned(host, server)
            check(host != self.home, "it runs on another host", shown)
            check(len(new) == int(other[1:]), f"it has {other[1:]} CPUs there", new)
            check(self.pinned(self.home, server) == held, "its old CPUs are kept for a revert", held)
            notes.append(f"runs on {host}, CPUs {_numbers(new)}; its old ones are kept")
        with self.step(f"revert {self.letters[server]}", self.home) as notes:
            self.client.act(server, "revertResize")
            shown = self.client.wait(server, "ACTIVE")
            check(shown["OS-EXT-SRV-ATTR:host"] == self.home, "it is back", shown)
            check(self.pinned(self.home, server) == held, "on the same CPUs", held)
            check(not self.pinned(host, server), f"and holds nothing on {host}", shown)
            notes.append("as it was before")

    def shelve(self, server: str) -> None:
        letter = self.letters[server]
        with self.step(f"shelve {letter}", self.home) as notes:
            self.client.act(server, "shelve")
            shown = self.client.wait(server, "SHELVED", "SHELVED_OFFLOADED")
            offloaded = shown["status"] == "SHELVED_OFFLOADED"
            notes.append("offloaded: its CPUs are free at once" if offloaded else "it keeps its place")
        if shown["status"] == "SHELVED":
            with self.step(f"offload {letter}", self.home) as notes:
                self.client.act(server, "shelveOffload")
                self.client.wait(server, "SHELVED_OFFLOADED")
                notes.append("its CPUs are free at once")
        self.holds_nothing(server)

    def holds_nothing(self, server: str) -> None:
        """No host, no pins and no claim, anywhere, in the first moment that the state shows."""
        nodes = self.client.nodes()
        held = {name: _numbers(pins(node, server)) for name, node in nodes.items() if pins(node, server)}
        check(not held, "a server without a host holds no CPU", held)
        claims = [claim for node in nodes.values() for claim in node["claims"] if claim["server"] == server]
        check(not claims, "a server without a host has no claim", claims)
        shown = self.client.server(server)
        check(shown["OS-EXT-SRV-ATTR:host"] is None, "an offloaded server has no host", shown)

    def unshelve_elsewhere(self, server: str, other: frozenset[int]) -> str:
        """Bring it back on another node; on the only node, on other CPUs."""
        elsewhere = [name for name in self.start if name != self.home]
        target = next((name for name in elsewhere if self._room(name)), self.home)
        with self.step(f"unshelve {self.letters[server]} elsewhere", target) as notes:
            self.client.act(server, "unshelve", {"host": target} if target != self.home else None)
            shown = self.client.wait(server, "ACTIVE")
            host = shown["OS-EXT-SRV-ATTR:host"]
            held = self.pinned(host, server)
            check(host == target, f"it runs on {target}", shown)
            check(len(held) == int(self.flavor[1:]), "it has all its CPUs again", held)
            check(host != self.home or not held & other, "no CPU has two servers", held, other)
            notes.append(f"on CPUs {_numbers(held)}")
        return target

    def _room(self, node: str) -> bool:
        cells = self.client.node(node)["cells"]
        return any(len(cell["dedicated"]) - len(cell["pins"]) >= int(self.flavor[1:]) for cell in cells)

    def failed_unshelve(self, server: str, node: str) -> None:
        with self.step(f"shelve {self.letters[server]} again", node):
            self.client.act(server, "shelve")
            if self.client.wait(server, "SHELVED", "SHELVED_OFFLOADED")["status"] == "SHELVED":
                self.client.act(server, "shelveOffload")
            self.client.wait(server, "SHELVED_OFFLOADED")
        write_faults(self.faults, {"call": "spawn", "server": server, "effect": "fail"})
        try:
            with self.step("unshelve fails (as ordered)", node) as notes:
                self.client.act(server, "unshelve")
                shown = self.client.wait(server, "SHELVED_OFFLOADED")
                check(shown.get("fault"), "the server says why its unshelve failed", shown)
                self.holds_nothing(server)
                notes.append("no host, no pins, a fault that says why")
        finally:
            write_faults(self.faults)

    def delete_in_the_api(self, server: str, node: str) -> None:
        """A server without a claim is deleted in the API: no attempt of the operation was ever cast."""
        generations = {name: there["generation"] for name, there in self.client.nodes().items()}
        with self.step(f"delete {self.letters[server]}", node) as notes:
            self.client.delete(server)
            check(self.client.request("GET", f"/v2.1/servers/{server}").status_code == 404,
                  "it is gone when the delete is answered")  # fmt: skip
            done = [work for work in self.client.operations(server) if work["kind"] == "delete"]
            check(len(done) == 1 and done[0]["attempt"] == 0, "no message was sent for it", done)
            now = {name: there["generation"] for name, there in self.client.nodes().items()}
            check(now == generations, "the delete touched no node", generations, now)
            notes.append("in the API alone, no message sent")

    def delete(self, server: str) -> None:
        with self.step(f"delete {self.letters[server]}", self.home):
            self.client.delete(server)
            self.client.wait_gone(server)

    def totals_equal_the_start(self) -> None:
        now = self.client.nodes()
        for name, before in self.start.items():
            old, new = totals(before), totals(now[name])
            check(new == old, f"{name} is as at the start", old, new)


def totals(node: Json) -> dict[str, Any]:
    """What is used of a node, in all."""
    fields = ("memory_used_mb", "disk_used_gb", "vcpus_shared_used", "cells", "claims")
    return {field: node[field] for field in fields}


def _numbers(cpus: frozenset[int]) -> str:
    return ",".join(str(cpu) for cpu in sorted(cpus))


def tell(client: Client, faults: Path) -> None:
    """The whole story; Broken if anything in it is not as it should be."""
    story = Story(client, faults)
    began = time.monotonic()
    print(f"\nThe story, with flavor {story.flavor} (· free, ~ shared, a and b: whose CPU it is)\n")
    try:
        first, held = story.boot("a", "boot a")
        story.resize(first)
        story.shelve(first)
        _, taken = story.boot("b", "boot b on the freed CPUs")
        check(taken & held, "b runs on CPUs that a gave back", held, taken)
        node = story.unshelve_elsewhere(first, taken)
        story.failed_unshelve(first, node)
        story.delete_in_the_api(first, node)
    finally:
        _clean_up(story)
    story.totals_equal_the_start()
    print(f"\nEvery CPU is accounted for; all totals are as at the start. {time.monotonic() - began:.1f} s")


def _clean_up(story: Story) -> None:
    """Delete what is left: b, and after a broken claim a."""
    for server in list(story.letters):
        if story.client.request("GET", f"/v2.1/servers/{server}").status_code == 200:
            story.delete(server)
