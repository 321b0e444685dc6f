"""Reading flavor extra specs and image properties by their common name, with the checks all of them share."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pinfold.model import cpuset
from pinfold.model.errors import InvalidRequest

TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
FALSE = frozenset({"0", "f", "false", "off", "n", "no"})


def refusal(code: str, message: str) -> InvalidRequest:
    """An InvalidRequest with that code."""
    return InvalidRequest(message, code=code)


class Props:
    """The ``hw:`` extra specs of a flavor and the ``hw_`` properties of an image.

    An empty value counts as absent, as it does for Nova.
    """

    def __init__(self, extra_specs: Mapping[str, str], image: Mapping[str, str]) -> None:
        self.extra_specs = extra_specs
        self.image_properties = image

    def flavor(self, key: str) -> str | None:
        """The flavor's ``hw:key``."""
        return self.extra_specs.get(f"hw:{key}") or None

    def image(self, key: str) -> str | None:
        """The image's ``hw_key``."""
        return self.image_properties.get(f"hw_{key}") or None

    def choice(self, key: str, allowed: Collection[str], code: str) -> tuple[str | None, str | None]:
        """The flavor's and the image's value, each one of ``allowed`` or absent."""
        values = (self.flavor(key), self.image(key))
        for value, where in zip(values, (f"flavor's 'hw:{key}'", f"image's 'hw_{key}'"), strict=True):
            if value is not None and value not in allowed:
                raise refusal(
                    code, f"The {where} is '{value}'; it must be one of: {', '.join(sorted(allowed))}."
                )
        return values


def boolean(name: str, value: str | None) -> bool | None:
    """A value such as 'yes' or 'False'; None where it is absent."""
    if value is None:
        return None
    word = value.strip().lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise refusal("invalid-boolean", f"'{name}' is '{value}'; it must be 'true' or 'false'.")


def integer(name: str, value: str, code: str, least: int = 1) -> int:
    """A decimal number that is at least ``least``."""
    text = value.strip()
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least:
        return int(text)
    raise refusal(code, f"'{name}' is '{value}'; it must be a whole number, at least {least}.")


def cpu_list(name: str, value: str) -> frozenset[int]:
    """A CPU list (:mod:`pinfold.model.cpuset`)."""
    try:
        return cpuset.parse(value)
    except InvalidRequest as error:
        raise refusal(error.code, f"'{name}': {error.message}") from None


def cpu_mask(name: str, value: str, vcpus: int) -> frozenset[int]:
    """A CPU list over a guest's vCPUs; one that begins with ``^`` leaves CPUs out of all of them."""
    if value.strip().startswith("^"):
        return cpu_list(name, f"0-{vcpus - 1},{value}")
    return cpu_list(name, value)
