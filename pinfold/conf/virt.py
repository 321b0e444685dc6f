"""Options of the hypervisor drivers: ``[fake]``. Which driver a host has is ``[compute] driver``."""

from __future__ import annotations

from oslo_config import cfg

OPTIONS: dict[str, list[cfg.Opt]] = {
    "fake": [
        cfg.StrOpt(
            "state_path",
            default="/var/lib/pinfold/hypervisor",
            help="Folder in which each fake hypervisor keeps its guests, in a folder named after its host; "
            "it is created when it is not there. Guests outlive the compute worker here, and how often "
            "ordered faults have struck is counted here for all hosts. Change it to keep several clouds on "
            "one machine apart.",
        ),
        cfg.StrOpt(
            "cpu_model",
            default="fake",
            help="What running guests see of this host's CPUs: they are moved live only to a host with the same. "
            "Set it on some hosts to see a live migration refused.",
        ),
        cfg.BoolOpt(
            "shared_storage",
            default=False,
            help="Whether the disks of this host's guests stand on storage that it shares with the other hosts under "
            "state_path that say so too: a server that is evacuated from one to another keeps its disk, where it is "
            "made anew from its image otherwise. Set it on all hosts to try that.",
        ),
        cfg.StrOpt(
            "fault_file",
            help="JSON file with faults to order: calls of the fake hypervisor fail, hang or are late as it "
            "says. It is looked at before and after every call and need not exist. Set it to test how the "
            "cloud behaves when a hypervisor misbehaves; leave it unset otherwise.",
        ),
        cfg.StrOpt(
            "topology",
            help="JSON file with the NUMA cells of this host's fake machines, a list of objects with id, "
            "cpuset, pcpuset, siblings, socket, memory (MB) and mempages. Set it to try placement on "
            "another machine than the default one (2 cells of 4 cores with 2 threads, 16384 MB each). Stop "
            "the worker to change it, and take away no CPU that a guest is pinned to.",
        ),
        cfg.IntOpt(
            "disk_gb",
            default=500,
            min=0,
            help="Disk of each fake machine in GB, as it is reported to the scheduler. Raise it when disk, "
            "and not CPUs or memory, keeps guests from being placed; nothing is allocated.",
        ),
    ],
}


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options known to ``conf``."""
    for group, options in OPTIONS.items():
        conf.register_opts(options, group=group)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return list(OPTIONS.items())
