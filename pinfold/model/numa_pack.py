"""Choosing host CPUs on one host cell, under the guest's thread policy.

A core is a set of sibling threads. Which demands fit is Nova's rule (``hw:cpu_thread_policy``); which of the
CPUs that the policy allows are taken is ours: cores that are already broken come first, so that whole free
cores survive.

- None and ``prefer``: ``n`` threads of each core, for the largest ``n`` with which the free cores suffice;
  what is left over goes together on one core. Where no ``n`` will do, any free threads.
- ``require``: the same, but ``n`` is at least 2, and a host without sibling threads is refused.
- ``isolate``: one thread of each wholly free core; its siblings are held, so that nobody shares the core.

The CPU for emulator threads (``hw:emulator_threads_policy=isolate``) is one more free thread; with
``isolate`` it has a core of its own as well.
"""

from __future__ import annotations

from itertools import chain

from pinfold.model.numa_view import CellView, Core, FreeCores

NOTHING: frozenset[int] = frozenset()

# Host CPUs for the vCPUs in their order (perhaps more than wanted), for emulator threads, and held siblings.
Choice = tuple[list[int], frozenset[int], frozenset[int]]


def shortfall(view: CellView, policy: str | None, wanted: int, reserve: int) -> tuple[str, int, int] | None:
    """What ``wanted`` vCPUs and ``reserve`` emulator CPUs lack on a host cell: (constraint, asked, free), or
    None where they fit."""
    total = wanted + reserve
    if total > len(view.free):
        have = len(view.host.dedicated)
        if total > have:
            return ("dedicated-cpus", total, have)
        return ("free-dedicated-cpus", total, len(view.free))
    if not wanted and (reserve or policy == "isolate"):
        # Nova's rule: an emulator CPU, or a core of one's own, goes with a pinned vCPU.
        return ("dedicated-vcpus", 1, 0)
    if policy == "isolate":
        whole = len(view.whole_cores)
        return ("whole-free-cores", total, whole) if total > whole else None
    if policy == "require":
        most = view.cores.most_with_siblings() if view.facts.threads > 1 else 0
        if wanted > most or not most:
            return ("sibling-threads", max(wanted, 2), most)
    return None


def choose(view: CellView, policy: str | None, wanted: int, reserve: int) -> Choice:
    """CPUs for a demand that has no shortfall."""
    if policy == "isolate":
        return _isolate(view.whole_cores[: wanted + reserve], wanted, reserve)
    if not wanted:
        return [], NOTHING, NOTHING
    cores = view.cores
    if cores.flat:
        # All cores have as many threads free: fill one after the other.
        reserved = frozenset(cores.flat[wanted : wanted + reserve]) if reserve else NOTHING
        return cores.flat, reserved, NOTHING
    cpus, left = _pick(cores, wanted, 2 if policy == "require" else 1)
    return cpus, frozenset(_cut(left, reserve)) if reserve else NOTHING, NOTHING


def _isolate(cores: list[Core], wanted: int, reserve: int) -> Choice:
    """The first thread of each core; the emulator CPU is on the last."""
    cores.sort()
    first = [core[0] for core in cores]
    reserved = frozenset(first[wanted:]) if reserve else NOTHING
    if sum(map(len, cores)) == len(cores):
        return first, reserved, NOTHING
    return first, reserved, frozenset(chain.from_iterable(cores)).difference(first)


def _pick(cores: FreeCores, wanted: int, least: int) -> tuple[list[int], list[Core]]:
    """Groups of as many siblings as Nova would take, the rest together on one core; and what is left free."""
    by_fit, at_least = cores.by_fit, cores.at_least
    for size in range(len(at_least) - 1, least - 1, -1):
        if size * at_least[size] >= wanted:
            break
    else:
        return _scatter(by_fit, wanted)
    full, rest = divmod(wanted, size)
    start = len(by_fit) - at_least[size]
    chosen = sorted(by_fit[start : start + full])
    cpus = [cpu for core in chosen for cpu in core[:size]]
    # What the guest leaves on its own cores comes first, so that it wins over a core with as many free.
    left = [core[size:] for core in chosen if len(core) > size]
    own = len(left)
    left += by_fit[:start]
    left += by_fit[start + full :]
    if rest:
        cpus += _cut(left, rest, least, own)
    return cpus, left


def _scatter(by_fit: list[Core], wanted: int) -> tuple[list[int], list[Core]]:
    """Any free threads: whole groups from the fullest cores on, the rest where it breaks least."""
    cpus: list[int] = []
    left = []
    for core in reversed(by_fit):
        if len(core) <= wanted - len(cpus):
            cpus += core
        else:
            left.append(core)
    missing = wanted - len(cpus)
    if missing:
        cpus += _cut(left, missing)
    return cpus, left


def _cut(left: list[Core], count: int, least: int = 1, own: int = 0) -> Core:
    """Take ``count`` threads off the core with the fewest that has so many. Under ``require`` (``least`` 2) a
    vCPU must not end up alone: the core is one of the guest's ``own`` (the first ones), or has a free thread
    more."""
    core = min(
        (core for at, core in enumerate(left) if len(core) >= count and (at < own or len(core) >= least)),
        key=len,
    )
    left[left.index(core)] = core[count:]
    return core[:count]
