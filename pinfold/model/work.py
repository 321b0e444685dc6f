"""What a worker is told to do: one attempt of an operation."""

from __future__ import annotations

import msgspec

from pinfold.model.host import Hypervisor
from pinfold.model.numa import Placement
from pinfold.model.request import Demand


class Target(msgspec.Struct, frozen=True):
    """The new place of a guest that is handed over while it runs."""

    host: str
    node: str
    placement: Placement | None = None


class Work(msgspec.Struct, frozen=True):
    """One attempt of an operation, for the worker of ``host`` that has ``node``.

    ``step`` is the last recorded one (where to go on); ``image`` is what to spawn from (create, unshelve, rebuild);
    ``snapshot`` is the id of the image to make (shelve, create_image), named ``snapshot_name``, of ``snapshot_owner``
    (the server's project if None); ``claim`` is the id of the claim the instance has there, if any; ``seconds_left``
    is until the operation's deadline, when it was sent. ``target`` is where a live migration is to hand its
    guest over; ``aborted``: unless it has.

    ``leg`` is the worker's part where several workers have one each. ``runs`` is whether the guest is to run once all
    is done; ``same_node`` is whether source and destination of a move are one node. ``refit``: what a rebuilt server
    holds is to be planned anew first.

    ``source`` is the dead host of a server that is evacuated, and its node; ``shared_storage`` what the request says
    of the server's disk (None: the worker is to look). ``hypervisor`` is what runs a guest that is to be moved
    live.
    """

    operation: str
    attempt: int
    kind: str
    instance: str
    name: str
    project_id: str
    user_id: str
    host: str
    node: str
    demand: Demand
    vm_state: str
    step: str | None = None
    image: str | None = None
    snapshot: str | None = None
    snapshot_name: str | None = None
    snapshot_properties: dict[str, str] = {}
    claim: str | None = None
    placement: Placement | None = None
    seconds_left: float = 300.0
    leg: str = ""
    runs: bool = True
    same_node: bool = False
    snapshot_owner: str | None = None
    snapshot_min_disk: int | None = None
    refit: bool = False
    target: Target | None = None
    aborted: bool = False
    source: tuple[str, str] | None = None
    shared_storage: bool | None = None
    hypervisor: Hypervisor | None = None


class Bell(msgspec.Struct, frozen=True):
    """What to send once a transaction has committed: conductors to run an operation, workers to do theirs.

    It is a bell, never the record: lost, it is rung again by a sweeper.
    """

    run: tuple[str, ...] = ()
    work: tuple[Work, ...] = ()


class Times(msgspec.Struct, frozen=True):
    """How long things may take, in seconds.

    ``service_down``: without a heartbeat, until a service counts as down. ``lease``: of a worker on what it does.
    ``sweep_after``: until an operation that nobody has taken up is swept. ``deadlines``: per kind of operation.
    ``keep_deleted``: how long a soft-deleted server is kept; 0 for no soft delete.
    """

    service_down: float = 15.0
    lease: float = 15.0
    sweep_after: float = 3.0
    deadlines: dict[str, float] = {}
    keep_deleted: float = 0.0
