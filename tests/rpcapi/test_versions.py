"""Senders and receivers of different releases either understand each other, or nothing is sent."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
import pytest

from pinfold.compute.manager import Manager as ComputeManager
from pinfold.conductor.manager import Manager as ConductorManager
from pinfold.model.errors import ConfigurationError, Conflict
from pinfold.rpcapi import clients, dispatch, local, messages, wire
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.versions import History
from pinfold.runtime import RealRuntime
from tests.rpcapi.conftest import CALLER


class Order(msgspec.Struct, frozen=True):
    """A record of three releases."""

    what: str
    colour: str | None = None
    tags: tuple[str, ...] = ()
    sizes: dict[str, int] = {}


SHOP = History(
    service="shop",
    version="1.2",
    methods={"order": "1.0", "cancel": "1.1"},
    fields={(Order, "colour"): "1.1", (Order, "tags"): "1.2", (Order, "sizes"): "1.2"},
)
RELEASES = ["1.0", "1.1", "1.2"]
ORDERS = [
    (Order("apple"), "1.0"),
    (Order("apple", colour="red"), "1.1"),
    (Order("apple", tags=("ripe",)), "1.2"),
    (Order("apple", colour="red", sizes={"big": 1}), "1.2"),
]


def receiver(kind: type[msgspec.Struct], history: History, version: str) -> type[msgspec.Struct]:
    """The record as the release ``version`` has it: without what came later, and strict about it."""
    later = {
        field
        for (owner, field), since in history.fields.items()
        if owner is kind and dispatch.parse_version(since) > dispatch.parse_version(version)
    }
    known: list[Any] = []
    for field in msgspec.structs.fields(kind):
        if field.name in later:
            continue
        if field.default is not msgspec.NODEFAULT:
            known.append((field.name, field.type, field.default))
        elif field.default_factory is not msgspec.NODEFAULT:
            known.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        else:
            known.append((field.name, field.type))
    return msgspec.defstruct(kind.__name__, known, forbid_unknown_fields=True)


@pytest.mark.parametrize(("pin", "there"), list(itertools.product(RELEASES, RELEASES)))
@pytest.mark.parametrize(("order", "since"), ORDERS)
def test_every_release_reads_what_every_release_sends_or_it_is_refused_before(
    pin: str, there: str, order: Order, since: str
) -> None:
    """F058."""
    if since > pin:
        with pytest.raises(Conflict, match=f"pinned to RPC version {pin}"):
            SHOP.version_for("order", order, pin)
        return
    needed = SHOP.version_for("order", order, pin)
    assert needed == since
    if dispatch.speaks(there, needed):
        read = messages.from_wire(SHOP.body(order, needed), receiver(Order, SHOP, there))
        assert all(getattr(read, field) == getattr(order, field) for field in read.__struct_fields__)
    else:
        # The receiver says NoSuchMethod and runs nothing; pinned to the oldest receiver, it does not come to it.
        assert pin > there


def test_a_method_that_came_later_is_refused_below_its_version() -> None:
    assert SHOP.version_for("cancel", None, "1.1") == "1.1"
    with pytest.raises(Conflict, match=r"this cancel needs 1\.1") as raised:
        SHOP.version_for("cancel", None, "1.0")
    assert raised.value.code == "rpc-version-pinned"


def test_a_message_asks_for_no_more_than_it_needs() -> None:
    assert SHOP.version_for("order", Order("apple"), "1.2") == "1.0"


@pytest.mark.parametrize("pin", [None, "1.0", "1.1", "1.2"])
def test_a_pin_that_this_release_speaks_is_accepted(pin: str | None) -> None:
    assert SHOP.check_pin(pin) == (pin or "1.2")


@pytest.mark.parametrize("pin", ["1.3", "2.0", "0.9", "auto", "", "1", "1.x", "1.0.0"])
def test_any_other_pin_is_a_start_up_error_that_says_which_can_be_spoken(pin: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[upgrade_levels\] shop = .* can speak 1\.0, 1\.1, 1\.2"):
        SHOP.check_pin(pin)


# --- the histories of the services ----------------------------------------------------------


def test_managers_export_exactly_the_methods_of_the_histories() -> None:
    for manager, history in [(ConductorManager, clients.CONDUCTOR), (ComputeManager, clients.COMPUTE)]:
        exported = {name for name in dir(manager) if getattr(getattr(manager, name), "rpc_exported", False)}
        assert exported == set(history.methods)


@pytest.mark.parametrize("history", [clients.CONDUCTOR, clients.COMPUTE], ids=lambda history: history.service)
def test_no_method_or_field_is_newer_than_its_service(history: History) -> None:
    for since in (*history.methods.values(), *history.fields.values()):
        assert dispatch.speaks(history.version, since)


@pytest.mark.parametrize("client", [clients.ConductorClient, clients.ComputeClient])
def test_the_docstring_tells_the_history(client: type) -> None:
    history = clients.CONDUCTOR if client is clients.ConductorClient else clients.COMPUTE
    told = (client.__doc__ or "").partition("Versions:")[2]
    for method, since in history.methods.items():
        paragraph = re.search(
            rf"^ +{re.escape(since)} (.*?)(?=^ +\d+\.\d+ |\Z)", told, re.DOTALL | re.MULTILINE
        )
        assert paragraph is not None
        assert method in paragraph[1]


def test_fields_that_came_later_have_defaults() -> None:
    for history in (SHOP, clients.CONDUCTOR, clients.COMPUTE):
        for kind, name in history.fields:
            assert not next(field for field in msgspec.structs.fields(kind) if field.name == name).required


def test_an_endpoint_of_an_older_release_is_not_called_with_what_it_lacks() -> None:
    class Old:
        @wire.exported
        def order(self, context: Context, record: object) -> object:
            return record

    transport = local.LocalTransport(local.Hub(RealRuntime()))
    running = transport.serve("shop", "one", Old(), "1.0")
    for order, needed in ORDERS:
        target = wire.Target("shop", SHOP.version_for("order", order, "1.2"))
        if needed == "1.0":
            transport.call(CALLER, target, "order", {"record": SHOP.body(order, needed)}, 5)
        else:
            with pytest.raises(wire.NoSuchMethod):
                transport.call(CALLER, target, "order", {"record": SHOP.body(order, needed)}, 5)
    running.stop()
