"""The extra specs that a flavor may have: their names, and which values each takes.

This is what the flavor API checks from microversion 2.86 on. The names and values of the ``hw`` namespaces
are Nova's; of namespaces that Pinfold does not act on (``capabilities``, ``quota``, ``vmware``, ...) any name
is accepted. ``hw:pmem`` is missing on purpose: no host here has persistent memory. A name in none of the
known namespaces is the operator's own, and always accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pinfold.model.errors import InvalidRequest
from pinfold.model.request_cells import parse_page_size
from pinfold.model.request_props import boolean, cpu_list, integer, refusal

_CODE = "invalid-extra-spec-value"

_Check = Callable[[str, str], object]


def _boolean(name: str, value: str) -> None:
    boolean(name, value)


def _positive(name: str, value: str) -> None:
    integer(name, value, _CODE)


def _count(name: str, value: str) -> None:
    integer(name, value, _CODE, least=0)


def _ports(name: str, value: str) -> None:
    if integer(name, value, _CODE, least=0) > 15:
        raise refusal(_CODE, f"'{name}' is '{value}'; it must be at most 15.")


def _text(name: str, value: str) -> None:
    """Any text."""


def _one_of(*allowed: str) -> _Check:
    def check(name: str, value: str) -> None:
        if value not in allowed:
            raise refusal(_CODE, f"'{name}' is '{value}'; it must be one of: {', '.join(allowed)}.")

    return check


_SPECS: dict[str, _Check] = {
    "hw:boot_menu": _boolean,
    "hw:cpu_cores": _positive,
    "hw:cpu_dedicated_mask": cpu_list,
    "hw:cpu_max_cores": _positive,
    "hw:cpu_max_sockets": _positive,
    "hw:cpu_max_threads": _positive,
    "hw:cpu_policy": _one_of("dedicated", "shared", "mixed"),
    "hw:cpu_realtime": _boolean,
    "hw:cpu_realtime_mask": cpu_list,
    "hw:cpu_sockets": _positive,
    "hw:cpu_thread_policy": _one_of("prefer", "isolate", "require"),
    "hw:cpu_threads": _positive,
    "hw:emulator_threads_policy": _one_of("isolate", "share"),
    "hw:ephemeral_encryption": _boolean,
    "hw:ephemeral_encryption_format": _one_of("luks", "plain"),
    "hw:hide_hypervisor_id": _boolean,
    "hw:locked_memory": _boolean,
    "hw:mem_encryption": _boolean,
    "hw:mem_encryption_model": _one_of("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"),
    "hw:mem_page_size": parse_page_size,
    "hw:numa_nodes": _positive,
    "hw:pci_numa_affinity_policy": _one_of("required", "preferred", "legacy", "socket"),
    "hw:pmu": _boolean,
    "hw:redirected_usb_ports": _ports,
    "hw:serial_port_count": _count,
    "hw:sound_model": _text,
    "hw:tpm_model": _one_of("tpm-tis", "tpm-crb"),
    "hw:tpm_secret_security": _one_of("user", "host", "deployment"),
    "hw:tpm_version": _one_of("1.2", "2.0"),
    "hw:usb_model": _text,
    "hw:vif_multiqueue_enabled": _boolean,
    "hw:viommu_model": _one_of("intel", "smmuv3", "virtio", "auto"),
    "hw:virtio_packed_ring": _boolean,
    "hw:watchdog_action": _one_of("none", "pause", "poweroff", "reset", "disabled"),
    "hw_rng:allowed": _boolean,
    "hw_rng:rate_bytes": _count,
    "hw_rng:rate_period": _count,
    "hw_video:ram_max_mb": _count,
    "os:secure_boot": _one_of("disabled", "required"),
}

# Names with a variable part, tried in order where a name is not in the table above.
_PATTERNS: tuple[tuple[re.Pattern[str], _Check], ...] = (
    (re.compile(r"hw:numa_cpus\.[0-9]{1,3}"), cpu_list),
    (re.compile(r"hw:numa_mem\.[0-9]{1,3}"), _positive),
    (re.compile(r"resources[a-zA-Z0-9_-]{0,64}:[A-Z0-9_]+"), _count),
    (re.compile(r"trait[a-zA-Z0-9_-]{0,64}:[A-Z0-9_]+"), _one_of("required", "forbidden")),
)

_NAMESPACES = re.compile(r"hw|hw_rng|hw_video|os|resources[a-zA-Z0-9_-]{0,64}|trait[a-zA-Z0-9_-]{0,64}")


def validate_extra_specs(extra_specs: Mapping[str, str]) -> None:
    """Raises InvalidRequest for the first name that is unknown in a known namespace (code
    ``unknown-extra-spec``) and for the first value that its name does not take."""
    for name, value in extra_specs.items():
        check = _check_of(name)
        if check is not None:
            check(name, value)
        elif _is_ours(name):
            raise InvalidRequest(
                f"The extra spec '{name}' is not known in the namespace '{name.split(':', 1)[0]}': remove"
                " it, or correct its name.",
                code="unknown-extra-spec",
            )


def unknown_extra_specs(extra_specs: Mapping[str, str]) -> tuple[str, ...]:
    """The names that stand in a known namespace, but are not known there."""
    return tuple(name for name in extra_specs if _check_of(name) is None and _is_ours(name))


def _check_of(name: str) -> _Check | None:
    if check := _SPECS.get(name):
        return check
    return next((check for pattern, check in _PATTERNS if pattern.fullmatch(name)), None)


def _is_ours(name: str) -> bool:
    namespace, colon, _ = name.partition(":")
    return bool(colon) and _NAMESPACES.fullmatch(namespace) is not None
