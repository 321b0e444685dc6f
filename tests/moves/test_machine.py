"""Random requests, failures and deaths on three hosts with up to 20 servers, through the WSGI application: what comes
of them is held against the model in ``model``.

2,000 fixed steps as it stands. More: MOVES_EXAMPLES=1000 pytest tests/moves/test_machine.py --hypothesis-seed=N
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from pinfold.db.models import Outbox
from pinfold.model.work import Times
from pinfold.rpcapi import wire
from pinfold.virt.driver import DriverError
from tests.books import new_book, sqlite_url
from tests.compute.world import Killed
from tests.moves.api import Api
from tests.moves.invariants import check
from tests.moves.model import ACTIONS, GONE, Known
from tests.moves.town import Town

HOSTS = ("n1", "n2", "n3")
FLAVORS = ("p1", "p2", "p4", "s2")
MOST = 20
EXAMPLES, STEPS = 20, 100
MOVES = sorted(name for name in ACTIONS if "ig" in name or "esize" in name or "evac" in name)
# what each action asks for, but those that ask for nothing
VALUES: dict[str, Callable[[Town, str], Any]] = {
    "resize": lambda town, flavor: {"flavorRef": flavor},
    "evacuate": lambda town, flavor: {},
    "os-migrateLive": lambda town, flavor: {"host": None, "block_migration": "auto"},
    "soft reboot": lambda town, flavor: {"type": "SOFT"},
    "hard reboot": lambda town, flavor: {"type": "HARD"},
    "createImage": lambda town, flavor: {"name": "kept"},
    "rebuild": lambda town, flavor: {"imageRef": town.image},
}
BLOWS = ("fails", "is lost", "dies", "is deleted", "is aborted", "comes twice")


class Machine(RuleBasedStateMachine):
    """Random steps, each with a look at the whole afterwards."""

    breach = ""

    @initialize(offload=st.sampled_from([0, -1]), keep=st.sampled_from([0, 600]), same_host=st.booleans())
    def start(self, offload: int, keep: int, same_host: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pinfold-machine-"))
        book = new_book(sqlite_url(self.folder))
        self.engine = book.engine
        self.town = Town(
            self.folder,
            book,
            HOSTS,
            times=Times(keep_deleted=keep),
            shelved_offload_time=offload,
            allow_resize_to_same_host=same_host,
        )
        self.api = Api(self.town)
        self.servers: dict[str, Known] = {}
        self.down: set[str] = set()
        self.fenced: set[str] = set()
        self.blow: tuple[int, str] | None = None
        self.soft = keep > 0
        self.story = [f"offload after {offload}, keep for {keep}, same host {same_host}"]

    # --- one step ------------------------------------------------------------------------------

    def settle(self, asked: str | None = None, *, rough: bool = False) -> None:
        """Carry everything to its end, with the blow that has been ordered; what holds then must hold."""
        town = self.town
        rough = rough or self.blow is not None or bool(self.down)
        # they take half of the time of a step; in the calm they have nothing to find but what a move or a host left
        roles = {role for role, _, _ in town.places()}
        audits = rough or not roles.isdisjoint({"leftover", "outgoing"})
        if self.blow is not None:
            town.twice = self.blow[1] == "comes twice"
            town.at = lambda number, event, when: self._strike(asked, number, event, when)
        town.events.clear()
        town.pump()
        town.at = self.blow = None
        town.twice = False
        for host in HOSTS:
            if not town.workers[host].up and host not in self.down:
                town.restart(host)
        town.settle(*self.servers, audits=audits)
        check(town)
        self.compare(rough=rough)

    def _strike(self, asked: str | None, number: int, event: str, when: str) -> None:
        assert self.blow is not None
        if number < self.blow[0] or when != "before":
            return
        kind = self.blow[1]
        self.town.at = None
        if kind == "dies":
            raise Killed
        if kind == "fails" and "driver" in event:
            raise DriverError("no")
        if kind == "is lost" and "driver" not in event:
            raise wire.CallTimeout("no reply")
        if kind == "is deleted" and asked is not None:
            self.delete_it(asked)
        if kind == "is aborted" and asked is not None:
            self.api.abort(asked)

    def compare(self, *, rough: bool) -> None:
        listed = self.api.servers()
        places: dict[str, list[tuple[str, str]]] = {}
        for role, server, node in self.town.places():
            places.setdefault(server, []).append((role, node))
        guests = self.town.all_guests()
        for server, known in list(self.servers.items()):
            shown = listed.get(server) or self.api.show(server)
            # what is left over somewhere may be the reason of something that happens later
            uneasy = rough or any(role == "leftover" for role, _ in places.get(server, ()))
            if not known.see(shown, rough=uneasy):
                del self.servers[server]
                continue
            assert shown is not None
            self.is_right(shown, places.get(server, []), guests.get(server, {}))

    def is_right(self, shown: dict[str, Any], places: list[tuple[str, str]], guests: dict[str, int]) -> None:
        """The host shown is that of the one claim that counts; a guest that runs is there."""
        current = [node for role, node in places if role == "current"]
        assert shown["OS-EXT-SRV-ATTR:host"] == (current[0] if current else None)
        running = [node for node, state in guests.items() if state == 1]
        assert not running or running == current, f"{shown['id']} runs on {running}, its place is {current}"
        if shown["status"] == "ACTIVE" and current[0] not in self.down and len(places) == 1:
            assert running == current, f"{shown['id']} is ACTIVE and does not run"

    # --- requests ------------------------------------------------------------------------------

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One of all that can happen. (As many rules of their own, most stories would have only few of them.)"""
        kinds = ["move"] * 6 + ["act"] * 6 + ["delete"] if self.servers else []
        kinds += ["boot"] * (8 if len(self.servers) < 8 else 3 if len(self.servers) < MOST else 0)
        kinds += ["restart"] + (["come_back"] * 6 if self.down else []) + ["power_cut"] * (len(self.down) < 2)
        kind = data.draw(st.sampled_from(kinds))
        if kind in ("boot", "move", "act", "delete") and data.draw(st.booleans()):
            self.blow = data.draw(st.tuples(st.integers(0, 8), st.sampled_from(BLOWS)))
        self.story.append(f"{kind}, blow {self.blow}")
        try:
            getattr(self, kind)(data)
        except AssertionError as error:
            Machine.breach = Machine.breach or "\n".join([*self.story, str(error)])
            raise

    def boot(self, data: st.DataObject) -> None:
        flavor = data.draw(st.sampled_from(FLAVORS))
        server = self.api.boot(flavor)
        self.story.append(f"  {server}")
        self.servers[server] = Known("BUILD", flavor, flavor, asked=frozenset({"ACTIVE", "ERROR"}))
        self.settle(server)

    def move(self, data: st.DataObject) -> None:
        self._act(data, data.draw(st.sampled_from(MOVES)), member=False)

    def act(self, data: st.DataObject) -> None:
        action = data.draw(st.sampled_from(sorted(ACTIONS)))
        self._act(data, action, member=ACTIONS[action].members and data.draw(st.booleans()))

    def _act(self, data: st.DataObject, action: str, *, member: bool) -> None:
        # on a server that is ready for it, if there is one
        ready = [one for one, known in self.servers.items() if known.status in ACTIONS[action].wants]
        if action == "evacuate":
            stuck = [server for _, server, node in self.town.places() if node in self.down]
            ready = [one for one in ready if one in stuck] or ready
        server = data.draw(st.sampled_from(ready or list(self.servers)))
        flavor = data.draw(st.sampled_from(FLAVORS))
        known, places = self.servers[server], self.town.roles(server)
        host = places.get("current")
        needs = {"confirmResize": ["outgoing"], "revertResize": ["current", "outgoing"]}.get(
            action, ["current"]
        )
        codes = known.codes(
            action,
            flavor,
            member=member,
            has_host=host is not None,
            host_down=any(places.get(role) in self.down for role in needs),
            free=not self.down and "leftover" not in places,
        )
        value = VALUES[action](self.town, flavor) if action in VALUES else None
        key = "reboot" if action.endswith("reboot") else action
        code = self.api.act(server, key, value, member=member)
        self.story.append(
            f"  {action} ({flavor}) of {server}, {known.status} on {host}: {code} {self.api.said}"
        )
        assert code in codes, f"{code} is not one of {codes}"
        if code == ACTIONS[action].code:
            known.accepted(action, flavor)
        self.settle(server)

    def delete(self, data: st.DataObject) -> None:
        server = data.draw(st.sampled_from(list(self.servers)))
        self.delete_it(server, forced=data.draw(st.booleans()))
        self.settle(server)

    def delete_it(self, server: str, *, forced: bool = False) -> None:
        assert (self.api.act(server, "forceDelete") if forced else self.api.delete(server)) in (202, 204)
        self.story.append(f"  {server} is deleted")
        self.servers[server].deleted = frozenset(
            {GONE} if forced or not self.soft else {GONE, "SOFT_DELETED"}
        )

    # --- misfortunes ---------------------------------------------------------------------------

    def restart(self, data: st.DataObject) -> None:
        self.town.workers[data.draw(st.sampled_from(sorted(set(HOSTS) - self.down)))].up = False
        self.settle(rough=True)

    def power_cut(self, data: st.DataObject) -> None:
        host = data.draw(st.sampled_from(sorted(set(HOSTS) - self.down)))
        self.story.append(f"  {host}")
        self.down.add(host)
        self.town.power_cut(host)
        if data.draw(st.booleans()):
            self.fenced.add(host)
            self.town.force_down(host)
        self.settle(rough=True)

    def come_back(self, data: st.DataObject) -> None:
        host = data.draw(st.sampled_from(sorted(self.down)))
        self.down.remove(host)
        if host in self.fenced:
            self.fenced.remove(host)
            self.town.force_down(host, False)
        self.settle(rough=True)

    def teardown(self) -> None:
        if not hasattr(self, "town"):
            return
        for host in self.fenced:
            self.town.force_down(host, False)
        self.down.clear()
        self.settle(rough=True)
        for server in list(self.servers):
            self.delete_it(server, forced=True)
        self.settle(rough=True)
        assert self.servers == {}
        assert self.town.claims() == []
        self.town.book.write(lambda session: session.execute(sa.update(Outbox).values(due_at=0.0)))
        self.town.box.sweeper.outbox()
        left = [image for image in self.town.images.list() if image.id != self.town.image]
        assert {(image.name, image.status) for image in left} <= {("kept", "active")}
        self.engine.dispose()
        shutil.rmtree(self.folder)


def test_no_breach_in_many_random_steps() -> None:
    try:
        run_state_machine_as_test(Machine, settings=_SETTINGS)
    except Exception as error:
        # threads of audits go their own ways, so that Hypothesis may not see the same once more
        raise AssertionError(Machine.breach or "no breach, but an error") from error


_SETTINGS = settings(
    max_examples=int(os.environ.get("MOVES_EXAMPLES", EXAMPLES)),
    stateful_step_count=STEPS,
    # to shrink a story of a hundred steps takes longer than to read it
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    derandomize="MOVES_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
