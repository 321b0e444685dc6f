"""Which version of an RPC interface a message needs, and what a pin (``[upgrade_levels]``) allows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from pinfold.model import errors
from pinfold.rpcapi.dispatch import parse_version
from pinfold.rpcapi.messages import to_wire


class History(msgspec.Struct, frozen=True):
    """When each method, and each field of a record that came later, was added.

    ``methods`` maps a method to the version that brought it; ``fields`` maps (record class, field) to the
    version that brought that field. Whoever adds one raises ``version`` and writes it into the class
    docstring of the client.
    """

    service: str
    version: str
    methods: Mapping[str, str]
    fields: Mapping[tuple[type[msgspec.Struct], str], str] = {}

    def check_pin(self, pin: str | None) -> str:
        """The version to speak. Raises ConfigurationError for a pin that this release cannot speak."""
        if pin is None:
            return self.version
        try:
            wanted, newest = parse_version(pin), parse_version(self.version)
        except ValueError:
            raise self._bad_pin(pin) from None
        if wanted[0] != newest[0] or wanted[1] > newest[1]:
            raise self._bad_pin(pin)
        return pin

    def version_for(self, method: str, record: msgspec.Struct | None, pin: str) -> str:
        """The lowest version that a receiver of this message must speak.

        Raises Conflict when that is newer than ``pin``: nothing may be sent then.
        """
        needed = [self.methods[method]]
        if record is not None:
            needed += [version for field, version in self._later(type(record)) if _is_set(record, field)]
        lowest = max(needed, key=parse_version)
        if parse_version(lowest) > parse_version(pin):
            raise errors.Conflict(
                f"{self.service} is pinned to RPC version {pin} and this {method} needs {lowest}; "
                f"raise or remove [upgrade_levels] {self.service} when every {self.service} is upgraded",
                code="rpc-version-pinned",
            )
        return lowest

    def body(self, record: msgspec.Struct, version: str) -> Any:
        """The record as JSON values, without fields that a receiver of ``version`` does not know."""
        value = to_wire(record)
        for field, since in self._later(type(record)):
            if parse_version(since) > parse_version(version):
                del value[field]
        return value

    def _later(self, kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
        return [(field, version) for (owner, field), version in self.fields.items() if owner is kind]

    def _bad_pin(self, pin: str) -> errors.ConfigurationError:
        major, minor = parse_version(self.version)
        spoken = ", ".join(f"{major}.{number}" for number in range(minor + 1))
        return errors.ConfigurationError(
            f"[upgrade_levels] {self.service} = {pin} is not a version this release can speak; "
            f"it can speak {spoken}; remove the option to speak {self.version}"
        )


def _is_set(record: msgspec.Struct, field: str) -> bool:
    """Whether a field that came later holds more than its default (an old receiver may then not miss it)."""
    return bool(getattr(record, field) != _default(type(record), field))


@cache
def _default(kind: type[msgspec.Struct], field: str) -> Any:
    """Only to compare with: msgspec looks all types of the record up anew for it."""
    found = next(known for known in msgspec.structs.fields(kind) if known.name == field)
    if found.default_factory is not msgspec.NODEFAULT:
        return found.default_factory()
    return found.default
