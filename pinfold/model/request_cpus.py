"""The CPUs of a request: allocation, thread and emulator policies, masks, and the topology the guest sees."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from pinfold.model import cpuset
from pinfold.model.request_props import Props, boolean, cpu_mask, integer, refusal

_POLICIES = ("dedicated", "mixed", "shared")
_THREAD_POLICIES = ("isolate", "prefer", "require")
_EMULATOR_POLICIES = ("isolate", "share")
_RESOURCE = re.compile(r"resources(?:[1-9][0-9]*)?:(VCPU|PCPU)")
_TRAIT = re.compile(r"trait(?:[1-9][0-9]*)?:HW_CPU_HYPERTHREADING")
_NO_LIMIT = 65_536


class CpuPolicies(NamedTuple):
    """What was resolved: ``dedicated`` and ``realtime`` are guest CPUs."""

    policy: str
    threads: str | None
    emulator: str | None
    dedicated: frozenset[int]
    realtime: frozenset[int]


class CpuTopology(msgspec.Struct, frozen=True):
    """Sockets, cores for each socket, threads for each core, as the guest sees them."""

    sockets: int
    cores: int
    threads: int


def policies(props: Props, vcpus: int) -> CpuPolicies:
    """All CPU policies of the request; raises InvalidRequest where they are unknown or contradict each other.

    The order of the checks is Nova's, so that a request with two faults gets the same answer.
    """
    policy = _cpu_policy(props)
    threads = _thread_policy(props)
    emulator = props.flavor("emulator_threads_policy")
    realtime = _realtime(props, vcpus)
    mask = _dedicated_mask(props, vcpus)
    _check_emulator_policy(emulator)
    policy = _from_resources(props, policy, emulator, vcpus)
    threads = _from_trait(props, threads)
    _check_together(policy, threads, emulator, mask, realtime)
    if policy == "dedicated":
        dedicated = frozenset(range(vcpus))
    else:
        dedicated = mask or (realtime if policy == "mixed" else frozenset())
    return CpuPolicies(policy or "shared", threads, emulator, dedicated, realtime)


def _cpu_policy(props: Props) -> str | None:
    """The flavor's policy, else the image's; an image may not take more than the flavor gives."""
    flavor, image = props.choice("cpu_policy", _POLICIES, "invalid-cpu-allocation-policy")
    more = {"shared": ("mixed", "dedicated"), "mixed": ("dedicated",)}
    if flavor in more and image in more[flavor]:
        raise refusal(
            "image-cpu-pinning-forbidden",
            f"The image's 'hw_cpu_policy' is '{image}', but the flavor's 'hw:cpu_policy' is '{flavor}':"
            f" choose a flavor with '{image}', or an image without the property.",
        )
    return flavor or image


def _thread_policy(props: Props) -> str | None:
    """The flavor's policy (even ``prefer``), else the image's; ``isolate`` and ``require`` must agree."""
    flavor, image = props.choice(
        "cpu_thread_policy", _THREAD_POLICIES, "invalid-cpu-thread-allocation-policy"
    )
    if flavor in ("isolate", "require") and image and image != flavor:
        raise refusal(
            "image-cpu-thread-policy-forbidden",
            f"The image's 'hw_cpu_thread_policy' is '{image}', but the flavor's 'hw:cpu_thread_policy' is"
            f" '{flavor}': they must be equal, or one of them absent.",
        )
    return flavor or image


def _check_emulator_policy(emulator: str | None) -> None:
    if emulator is not None and emulator not in _EMULATOR_POLICIES:
        raise refusal(
            "invalid-emulator-threads-policy",
            f"The flavor's 'hw:emulator_threads_policy' is '{emulator}'; it must be one of: isolate, share.",
        )


def _realtime(props: Props, vcpus: int) -> frozenset[int]:
    """The realtime vCPUs, none where realtime is off. The image's mask goes before the flavor's."""
    if not boolean("hw:cpu_realtime", props.flavor("cpu_realtime")):
        return frozenset()
    code = "realtime-mask-not-found-or-invalid"
    image, flavor = props.image("cpu_realtime_mask"), props.flavor("cpu_realtime_mask")
    name, mask = ("hw_cpu_realtime_mask", image) if image else ("hw:cpu_realtime_mask", flavor)
    everything = frozenset(range(vcpus))
    cpus = cpu_mask(name, mask, vcpus) if mask else everything
    if not cpus:
        raise refusal(code, f"'{name}' is '{mask}', which leaves no vCPU for realtime: name at least one.")
    emulator = props.flavor("emulator_threads_policy")
    _check_emulator_policy(emulator)
    if cpus == everything and not emulator:
        shown = f"'{mask}'" if mask else "absent"
        raise refusal(
            code,
            f"'hw:cpu_realtime' is on and '{name}' is {shown}: leave at least one vCPU"
            " out of it (such as '^0'), or set 'hw:emulator_threads_policy'.",
        )
    if not cpus <= everything:
        raise refusal(
            code,
            f"'{name}' is '{mask}', which has vCPUs that the flavor has not: they are 0 to {vcpus - 1}.",
        )
    return cpus


def _dedicated_mask(props: Props, vcpus: int) -> frozenset[int]:
    """The vCPUs of ``hw:cpu_dedicated_mask``: some, but not all; none where it is absent."""
    mask = props.flavor("cpu_dedicated_mask")
    if mask is None:
        return frozenset()
    cpus = cpu_mask("hw:cpu_dedicated_mask", mask, vcpus)
    everything = frozenset(range(vcpus))
    if not cpus or not cpus < everything:
        raise refusal(
            "invalid-mixed-instance-dedicated-mask",
            f"The flavor's 'hw:cpu_dedicated_mask' is '{mask}'; it must name some but not all of the vCPUs"
            f" 0 to {vcpus - 1}.",
        )
    return cpus


def _from_resources(props: Props, policy: str | None, emulator: str | None, vcpus: int) -> str | None:
    """``resources:PCPU`` means dedicated, ``resources:VCPU`` shared; not together with a CPU policy."""
    asked = {"VCPU": 0, "PCPU": 0}
    for name, value in props.extra_specs.items():
        if match := _RESOURCE.fullmatch(name):
            asked[match[1]] += integer(name, value, "invalid-request", least=0)
    if policy and (asked["VCPU"] or asked["PCPU"]):
        raise refusal(
            "invalid-request",
            f"The flavor has 'resources:VCPU' or 'resources:PCPU', and the CPU policy is '{policy}': use"
            " one or the other.",
        )
    if asked["VCPU"] and asked["PCPU"]:
        raise refusal(
            "invalid-request",
            f"The flavor has both 'resources:VCPU' ({asked['VCPU']}) and 'resources:PCPU'"
            f" ({asked['PCPU']}): use one or the other.",
        )
    if asked["PCPU"]:
        right = vcpus + (emulator == "isolate")
        if asked["PCPU"] != right:
            raise refusal(
                "invalid-request",
                f"The flavor's 'resources:PCPU' is {asked['PCPU']}; with {vcpus} vCPUs"
                f"{' and an emulator CPU' if right > vcpus else ''} it must be {right}.",
            )
        return "dedicated"
    return "shared" if asked["VCPU"] else policy


def _from_trait(props: Props, threads: str | None) -> str | None:
    """The hyperthreading trait required means ``require``, forbidden means ``isolate``."""
    trait = next((v for k, v in props.extra_specs.items() if _TRAIT.fullmatch(k)), None)
    if trait is None and props.image_properties.get("trait:HW_CPU_HYPERTHREADING") == "required":
        trait = "required"
    if trait is None:
        return threads
    if threads:
        raise refusal(
            "invalid-request",
            f"'trait:HW_CPU_HYPERTHREADING' is '{trait}', and the CPU thread policy is '{threads}': use one"
            " or the other.",
        )
    meaning = {"required": "require", "forbidden": "isolate"}
    if trait not in meaning:
        raise refusal(
            "invalid-request",
            f"'trait:HW_CPU_HYPERTHREADING' is '{trait}'; it must be 'required' or 'forbidden'.",
        )
    return meaning[trait]


def _check_together(
    policy: str | None,
    threads: str | None,
    emulator: str | None,
    mask: frozenset[int],
    realtime: frozenset[int],
) -> None:
    """What needs dedicated CPUs, and what needs the mixed policy."""
    shown = f"the CPU policy is '{policy or 'shared'}'"
    if policy in (None, "shared"):
        _check_shared(shown, threads, emulator)
    if policy != "mixed" and mask:
        raise refusal(
            "required-mixed-instance-policy",
            f"'hw:cpu_dedicated_mask' is '{cpuset.render(mask)}', but {shown}: it must be 'mixed'.",
        )
    if policy in (None, "shared") and realtime:
        raise refusal(
            "realtime-configuration-invalid",
            f"'hw:cpu_realtime' is on, but {shown}: it must be 'dedicated' or 'mixed'.",
        )
    if policy == "mixed" and bool(mask) == bool(realtime):
        raise refusal(
            "required-mixed-or-realtime-cpu-mask",
            f"'hw:cpu_policy' is 'mixed' with {'two masks' if mask else 'no mask'}: set either"
            " 'hw:cpu_dedicated_mask' or 'hw:cpu_realtime' and 'hw:cpu_realtime_mask'.",
        )


def _check_shared(shown: str, threads: str | None, emulator: str | None) -> None:
    if threads:
        raise refusal(
            "cpu-thread-policy-configuration-invalid",
            f"The CPU thread policy ('hw:cpu_thread_policy') is '{threads}', but {shown}: it must be 'dedicated'"
            " or 'mixed'.",
        )
    if emulator == "isolate":
        raise refusal(
            "bad-requirement-emulator-threads-policy",
            f"'hw:emulator_threads_policy' is 'isolate', but {shown}: it must be 'dedicated' or 'mixed'.",
        )


def cpu_topology(props: Props, vcpus: int) -> CpuTopology | None:
    """Sockets, cores and threads by ``hw:cpu_sockets`` and its like, or None where nothing is said.

    Of the topologies within the maxima, the one that matches most of the wishes; then fewest threads, then
    most sockets. An image may lower the flavor's maxima; its wishes replace the flavor's.
    """
    maxima = _numbers(props, "cpu_max_")
    wishes = _numbers(props, "cpu_")
    if not any(maxima.flavor + maxima.image + wishes.flavor + wishes.image):
        return None
    most = _maxima(maxima)
    wanted = _wishes(wishes, most)
    best: tuple[tuple[int, ...], CpuTopology] | None = None
    for sockets in _divisors(vcpus, most[0]):
        for cores in _divisors(vcpus // sockets, most[1]):
            shape = (sockets, cores, vcpus // sockets // cores)
            if shape[2] > most[2]:
                continue
            score = sum(have == want for have, want in zip(shape, wanted, strict=True))
            rank = (score, sockets * cores, sockets)
            if best is None or rank > best[0]:
                best = (rank, CpuTopology(*shape))
    if best is None:
        raise refusal(
            "image-vcpu-limits-range-impossible",
            f"The maxima {_shown('max_', most)} allow no topology with exactly {vcpus} vCPUs: raise one of"
            " them.",
        )
    return best[1]


class _Numbers(NamedTuple):
    flavor: tuple[int, int, int]
    image: tuple[int, int, int]


def _numbers(props: Props, prefix: str) -> _Numbers:
    """Sockets, cores and threads of both sides; 0 where absent."""
    names = [prefix + what for what in ("sockets", "cores", "threads")]

    def read(side: str, value: str | None) -> int:
        return integer(side, value, "invalid-request", least=0) if value else 0

    flavor = [read(f"hw:{name}", props.flavor(name)) for name in names]
    image = [read(f"hw_{name}", props.image(name)) for name in names]
    return _Numbers((flavor[0], flavor[1], flavor[2]), (image[0], image[1], image[2]))


def _maxima(maxima: _Numbers) -> tuple[int, ...]:
    if any(have and asked > have for have, asked in zip(maxima.flavor, maxima.image, strict=True)):
        raise refusal(
            "image-vcpu-limits-range-exceeded",
            f"The image's maxima {_shown('max_', maxima.image)} are above the flavor's"
            f" {_shown('max_', maxima.flavor)}: an image may only lower them.",
        )
    return tuple(
        image or flavor or _NO_LIMIT for flavor, image in zip(maxima.flavor, maxima.image, strict=True)
    )


def _wishes(wishes: _Numbers, most: tuple[int, ...]) -> tuple[int, ...]:
    """The image's wishes, else the flavor's; the flavor's are dropped where the image's maxima forbid them."""
    if any(asked > limit for asked, limit in zip(wishes.image, most, strict=True)):
        raise refusal(
            "image-vcpu-topology-range-exceeded",
            f"The image's topology {_shown('', wishes.image)} is above the maxima {_shown('max_', most)}:"
            " lower it.",
        )
    if any(wishes.image):
        return wishes.image
    if any(asked > limit for asked, limit in zip(wishes.flavor, most, strict=True)):
        return (0, 0, 0)
    return wishes.flavor


def _divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def _shown(prefix: str, numbers: tuple[int, ...]) -> str:
    names = ("sockets", "cores", "threads")
    pairs = zip(names, numbers, strict=True)
    return ", ".join(f"hw:cpu_{prefix}{name}={n}" for name, n in pairs if n and n != _NO_LIMIT)
