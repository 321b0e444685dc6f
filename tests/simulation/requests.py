"""What the requests of the API write: the functions that the API itself calls, by name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from sqlalchemy.orm import Session

from pinfold.api.deps import Deps
from pinfold.db import moves, resets, services, starts
from pinfold.db.models import Instance, Service
from pinfold.db.moves import Size
from pinfold.db.operations import Requester
from pinfold.model.rebuild import Rebuild
from pinfold.model.request import demand_for
from pinfold.model.work import Bell

WHO = Requester("req-user", "project", "user")
BASE_IMAGE = "tiny"

#: Changes of what a guest does, by the state they start from.
POWER = {
    "active": ("stop", "reboot", "hard_reboot", "pause", "suspend"),
    "stopped": ("start",),
    "paused": ("unpause", "hard_reboot"),
    "suspended": ("resume",),
    "soft-delete": ("restore",),
}

#: What makes sense in each state; more often what is named more often.
SENSIBLE = {
    "active": (
        *["shelve"] * 8,
        *["resize"] * 3,
        *["migrate"] * 3,
        *["rebuild", "create_image", "delete"],
        *POWER["active"],
    ),
    "stopped": (*["start"] * 3, "shelve", "resize", "migrate", "rebuild", "delete"),
    "paused": (*["unpause"] * 3, "shelve", "hard_reboot", "delete"),
    "suspended": (*["resume"] * 3, "shelve", "delete"),
    "shelved": (*["shelve_offload", "unshelve"] * 2, "delete"),
    "shelved_offloaded": (*["unshelve"] * 6, "delete"),
    "resized": (*["confirm", "revert"] * 2, "delete"),
    "soft-delete": ("restore", "restore", "force_delete"),
    "error": ("delete", "delete", "rebuild", "hard_reboot", "reset_active"),
    "building": (*["none"] * 6, "delete"),
}
ANY = tuple(sorted({kind for kinds in SENSIBLE.values() for kind in kinds} - {"none"}))
DELETES = ("delete", "force_delete")


def _size(name: str, vcpus: int, **extra: str) -> Size:
    specs = {f"hw:{key}": value for key, value in extra.items()}
    demand = demand_for(vcpus=vcpus, memory_mb=512, disk_gb=1, extra_specs=specs, image_properties={})
    return Size({"flavorid": name, "name": name, "vcpus": vcpus, "extra_specs": specs}, demand)


SIZES = (
    _size("p1", 1, cpu_policy="dedicated"),
    _size("p2", 2, cpu_policy="dedicated"),
    _size("p2-require", 2, cpu_policy="dedicated", cpu_thread_policy="require"),
    _size("p1-isolate", 1, cpu_policy="dedicated", cpu_thread_policy="isolate"),
    _size("p4", 4, cpu_policy="dedicated"),
    _size("s1", 1),
)

Write = Callable[[Session], Bell]


class Request:
    """One request, with the new ids that its API would have made before its transaction."""

    def __init__(self, deps: Deps, random: Random, kind: str, subject: str) -> None:
        self._deps = deps
        self._kind = kind
        self._subject = subject
        self._operation, self._other = deps.runtime.new_id(), deps.runtime.new_id()
        self._size = random.choice(SIZES)

    def write(self, session: Session) -> Bell:
        """The request's transaction. Raises what the API tells its caller."""
        special: dict[str, Write] = {
            "create": self._create,
            "force_down": lambda session: self._force_down(session, down=True),
            "lift": lambda session: self._force_down(session, down=False),
            "reset_active": lambda session: self._reset(session, "active"),
            "reset_error": lambda session: self._reset(session, "error"),
        }
        if self._kind in special:
            return special[self._kind](session)
        start, more = self._start()
        bell: Bell = start(
            session,
            self._subject,
            *more,
            WHO,
            self._deps.times,
            operation_id=self._operation,
            **self._named(),
        )
        return bell

    def _start(self) -> tuple[Callable[..., Bell], tuple[str, ...]]:
        """The function, and what it wants between the server and who asks."""
        functions: dict[str, Callable[..., Bell]] = {
            "shelve": starts.shelve,
            "shelve_offload": starts.shelve_offload,
            "unshelve": starts.unshelve,
            "delete": starts.delete,
            "force_delete": starts.delete,
            "rebuild": starts.rebuild,
            "resize": moves.resize,
            "migrate": moves.migrate,
            "confirm": moves.confirm,
            "revert": moves.revert,
            "evacuate": moves.evacuate,
        }
        if self._kind in functions:
            return functions[self._kind], ()
        return starts.in_place, (self._kind,)

    def _named(self) -> dict[str, Any]:
        images = {"image_id": self._other}
        snapshot = {"snapshot": self._other, "snapshot_name": "picture", "snapshot_properties": {}}
        rebuild = Rebuild(image=BASE_IMAGE, image_properties={}, demand=self._size.demand)
        named: dict[str, dict[str, Any]] = {
            "shelve": {**images, "image_name": "shelved", "image_properties": {}},
            "resize": {**images, "size": self._size},
            "migrate": images,
            "delete": {"soft": self._deps.times.keep_deleted > 0},
            "force_delete": {"force": True},
            "rebuild": {"wanted": rebuild},
            "create_image": {"arguments": snapshot},
        }
        return named.get(self._kind, {})

    def _create(self, session: Session) -> Bell:
        instance = Instance(
            id=self._other,
            project_id="project",
            user_id="user",
            name="s",
            hostname="s",
            reservation_id="r-1",
            vm_state="",
            image_ref=BASE_IMAGE,
            flavor=self._size.flavor,
            hints={},
            demand=self._size.demand,
        )
        return starts.create(session, [instance], WHO, self._deps.times, operation_ids=[self._operation])

    def _reset(self, session: Session, state: str) -> Bell:
        resets.reset_state(session, self._subject, state, WHO, self._deps.times, operation_id=self._operation)
        return Bell()

    def _force_down(self, session: Session, *, down: bool) -> Bell:
        service = session.query(Service).filter_by(host=self._subject).one()
        services.update(session, service, {"forced_down": down})
        return Bell()
