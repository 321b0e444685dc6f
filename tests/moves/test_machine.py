"""Random requests, failures and deaths on three hosts, through the WSGI application, against a small model.

400 fixed steps as it stands. More: MOVES_EXAMPLES=1000 pytest tests/moves/test_machine.py --hypothesis-seed=N
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pinfold.api.server_actions import ACTIONS as BUILT_ACTIONS
from pinfold.db.session import Book, make_engine
from pinfold.runtime import RealRuntime
from pinfold.virt.driver import DriverError
from tests.books import sqlite_url
from tests.compute.world import Killed
from tests.moves.api import Api
from tests.moves.invariants import check
from tests.moves.town import Town

HOSTS = ("n1", "n2", "n3")
MOST = 20
# action: the status code, the statuses that it wants, and those that it may lead to (besides staying as it was)
ACTIONS: dict[str, tuple[int, set[str], set[str]]] = {
    "migrate": (202, {"ACTIVE", "SHUTOFF"}, {"VERIFY_RESIZE"}),
    "resize": (202, {"ACTIVE", "SHUTOFF"}, {"VERIFY_RESIZE"}),
    "confirmResize": (204, {"VERIFY_RESIZE"}, {"ACTIVE", "SHUTOFF"}),
    "revertResize": (202, {"VERIFY_RESIZE"}, {"ACTIVE", "SHUTOFF"}),
    "shelve": (202, {"ACTIVE", "SHUTOFF"}, {"SHELVED", "SHELVED_OFFLOADED"}),
    "unshelve": (202, {"SHELVED", "SHELVED_OFFLOADED"}, {"ACTIVE"}),
    "os-stop": (202, {"ACTIVE"}, {"SHUTOFF"}),
    "os-start": (202, {"SHUTOFF"}, {"ACTIVE"}),
    "os-migrateLive": (202, {"ACTIVE"}, {"ACTIVE"}),
    "evacuate": (200, {"ACTIVE", "SHUTOFF", "ERROR"}, {"ACTIVE", "SHUTOFF"}),
}
BUILT = sorted(ACTIONS.keys() & BUILT_ACTIONS.keys())


class Known(msgspec.Struct):
    """What the model knows of a server: what it may look like now."""

    statuses: set[str]
    flavor: str
    before: str


class Machine(RuleBasedStateMachine):
    """``empty_book`` is set by the test."""

    empty_book: Path

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pinfold-machine-"))
        shutil.copy(self.empty_book, self.folder)
        self.engine = make_engine(sqlite_url(self.folder))
        self.town = Town(self.folder, Book(self.engine, RealRuntime()), HOSTS)
        self.api = Api(self.town)
        self.servers: dict[str, Known] = {}
        self.down: set[str] = set()
        self.blow: tuple[int, str] | None = None

    # --- one step ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Carry everything to its end, with the blow that has been ordered; what holds then must hold."""
        if self.blow is not None:
            self.town.at = self._strike
            self.town.events.clear()
        self.town.pump()
        self.town.at = self.blow = None
        for host in HOSTS:
            if not self.town.workers[host].up and host not in self.down:
                self.town.restart(host)
        self.town.settle(*self.servers)
        check(self.town)
        for server in list(self.servers):
            self.compare(server)

    def _strike(self, number: int, event: str, when: str) -> None:
        assert self.blow is not None
        if number == self.blow[0] and when == "before":
            self.town.at = None
            if self.blow[1] == "dies":
                raise Killed
            if "driver" in event:
                raise DriverError("no")

    def compare(self, server: str) -> None:
        known, shown = self.servers[server], self.api.show(server)
        if "DELETED" in known.statuses and shown is None:
            del self.servers[server]
            return
        assert shown is not None, f"{server} is gone"
        assert shown["OS-EXT-STS:task_state"] is None
        assert shown["status"] in known.statuses, f"{shown['status']} is not in {known.statuses}"
        name = shown["flavor"]["original_name"]
        assert name in (known.flavor, known.before)
        if shown["status"] != "VERIFY_RESIZE":
            known.before = name
        known.flavor = name
        # a guest that fell to the end of its host is started with it, or told to be off
        known.statuses = {shown["status"]} | ({"SHUTOFF", "ACTIVE"} & {shown["status"], "SHUTOFF"})
        self.is_right(server, shown)

    def is_right(self, server: str, shown: dict[str, Any]) -> None:
        """The host shown is that of the one claim that counts; a guest that runs is there."""
        roles, guests = self.town.box.claims(server), self.town.guests(server)
        current = [node for role, node in roles if role == "current"]
        assert shown["OS-EXT-SRV-ATTR:host"] == (current[0] if current else None)
        running = [node for node, state in guests.items() if state == 1]
        assert not running or running == current, f"{server} runs on {running}, its place is {current}"
        if shown["status"] == "ACTIVE" and current[0] not in self.down and len(roles) == 1:
            assert running == current, f"{server} is ACTIVE and does not run"

    # --- requests ------------------------------------------------------------------------------

    @precondition(lambda self: len(self.servers) < MOST)
    @rule(flavor=st.sampled_from(["p1", "p2", "p4"]))
    def boot(self, flavor: str) -> None:
        server = self.api.boot(flavor)
        self.servers[server] = Known({"ACTIVE", "ERROR"}, flavor, flavor)
        self.settle()

    @precondition(lambda self: self.servers)
    @rule(data=st.data(), action=st.sampled_from(BUILT), flavor=st.sampled_from(["p1", "p2", "p4"]))
    def act(self, data: st.DataObject, action: str, flavor: str) -> None:
        server = data.draw(st.sampled_from(sorted(self.servers)))
        known, shown = self.servers[server], self.api.show(server)
        assert shown is not None
        status, host = shown["status"], shown["OS-EXT-SRV-ATTR:host"]
        live = {"host": None, "block_migration": "auto"}
        value = {"resize": {"flavorRef": flavor}, "evacuate": {}, "os-migrateLive": live}.get(action)
        code = self.api.act(server, action, value)
        right, wanted, leads_to = ACTIONS[action]
        if status not in wanted or (status == "ERROR" and host is None):
            assert code in (400, 409), f"{action} of {status}: {code}"
        elif action == "resize" and flavor == known.flavor:
            assert code in (400, 409)
        elif action == "evacuate":
            assert code == (right if host in self.down else 400) or code == 409
        elif host in self.down:
            assert code == 409, f"{action} with its host down: {code}"
        else:
            # a leftover, or the other end of a move that is down, may forbid it
            assert code in (right, 409), f"{action} of {status}: {code}"
        if code == right:
            known.statuses |= leads_to
            if action == "resize":
                known.before, known.flavor = known.flavor, flavor
        self.settle()

    @precondition(lambda self: self.servers)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        server = data.draw(st.sampled_from(sorted(self.servers)))
        assert self.api.delete(server) == 204
        self.servers[server].statuses.add("DELETED")
        self.settle()

    # --- misfortunes ---------------------------------------------------------------------------

    @rule(number=st.integers(0, 25), kind=st.sampled_from(["fails", "dies"]))
    def strike_next(self, number: int, kind: str) -> None:
        """At the so-manieth event of the next request."""
        self.blow = (number, kind)

    @rule(host=st.sampled_from(HOSTS))
    def restart(self, host: str) -> None:
        if host not in self.down:
            self.town.workers[host].up = False
            self.settle()

    @precondition(lambda self: len(self.down) < 2)
    @rule(host=st.sampled_from(HOSTS))
    def power_cut(self, host: str) -> None:
        if host not in self.down:
            self.down.add(host)
            self.town.power_cut(host)
            self.settle()

    @precondition(lambda self: self.down)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        host = data.draw(st.sampled_from(sorted(self.down)))
        self.down.remove(host)
        self.settle()

    def teardown(self) -> None:
        if not hasattr(self, "town"):
            return
        self.down.clear()
        self.settle()
        for server in list(self.servers):
            self.delete_all(server)
        self.settle()
        assert self.town.claims() == []
        assert [image.id for image in self.town.images.list()] == [self.town.image]
        self.engine.dispose()
        shutil.rmtree(self.folder)

    def delete_all(self, server: str) -> None:
        assert self.api.delete(server) == 204
        self.servers[server].statuses.add("DELETED")


def test_no_breach_in_many_random_steps(empty_book: Path) -> None:
    Machine.empty_book = empty_book
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=int(os.environ.get("MOVES_EXAMPLES", "4")),
            stateful_step_count=100,
            # to shrink a story of a hundred steps takes longer than to read it
            phases=[Phase.explicit, Phase.generate],
            deadline=None,
            derandomize="MOVES_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )
