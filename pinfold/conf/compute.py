"""Options of the compute worker: ``[compute]``."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "compute"

_HYPERVISOR: list[cfg.Opt] = [
    cfg.StrOpt(
        "driver",
        default="fake",
        choices=[("fake", "guests that are folders; for tests and demonstrations")],
        help="What runs the guests. Its own options stand in the group of its name. Stop the worker and empty its "
        "hosts before changing it: guests of another driver are not seen.",
    ),
    cfg.ListOpt(
        "nodes",
        default=[],
        help="Names of the hypervisor's nodes that this worker serves; unset means one node, named as [DEFAULT] "
        "host. Set it to several where one worker drives several machines. A node on which servers hold claims "
        "cannot be taken away: the worker says so and does not start.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/pinfold/compute",
        help="Folder that tells this machine apart from another one of the same host name, and keeps a second worker "
        "of the same host out. It is created when it is not there. Change it only together with what is in it, and "
        "keep it when the worker is installed anew; never copy it to another machine, or into an image of one.",
    ),
    cfg.HostAddressOpt(
        "my_ip",
        sample_default="<the address that this machine reaches others from>",
        help="Address of this host, as the list of hypervisors shows it. Set it on a machine with several networks.",
    ),
]

_PARTITION: list[cfg.Opt] = [
    cfg.StrOpt(
        "cpu_dedicated_set",
        help="CPUs to which guests are pinned, each to one guest at a time, such as 2-15,18-31,^20. What is neither "
        "here nor in cpu_shared_set is the host's own. Set it to run servers with hw:cpu_policy dedicated. A CPU "
        "that a server holds cannot be taken out: the worker names the servers and does not start. With neither set, "
        "all CPUs are shared.",
    ),
    cfg.StrOpt(
        "cpu_shared_set",
        help="CPUs over which all other guests float, such as 0-1,16-17. It must not overlap cpu_dedicated_set. Set "
        "it when servers without dedicated CPUs, or emulator threads with hw:emulator_threads_policy share, are to "
        "run here beside pinned ones.",
    ),
    cfg.FloatOpt(
        "cpu_allocation_ratio",
        default=4.0,
        min=0.0,
        help="How many shared vCPUs are promised for each CPU of cpu_shared_set. Lower it where guests wait for CPU "
        "time; dedicated CPUs are never promised twice, whatever it says.",
    ),
    cfg.FloatOpt(
        "memory_allocation_ratio",
        default=1.0,
        min=0.0,
        help="How much memory is promised for each MB that there is. Raise it above 1.0 only where guests use far "
        "less than they have and the host can swap; pages of a size that a guest names are never promised twice.",
    ),
    cfg.FloatOpt(
        "disk_allocation_ratio",
        default=1.0,
        min=0.0,
        help="How much disk is promised for each GB that there is. Raise it where guests' disks are sparse and "
        "somebody watches how full the disk really is.",
    ),
    cfg.IntOpt(
        "reserved_memory_mb",
        default=0,
        min=0,
        help="Memory of each node that guests do not get. Set it on real hosts to what the system, the hypervisor "
        "and this worker need, 2048 say.",
    ),
    cfg.IntOpt(
        "reserved_disk_gb",
        default=0,
        min=0,
        help="Disk of each node that guests do not get. Set it where guests share the disk with something else.",
    ),
    cfg.MultiStrOpt(
        "reserved_huge_pages",
        default=[],
        help="Pages that guests do not get, as node:0,size:2048,count:64: NUMA cell, size in KiB, number of pages. "
        "It may stand several times. Set it where something else on the host, such as a virtual switch, uses huge "
        "pages.",
    ),
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        help="Whether guest cells go to the fullest NUMA cell that has room, rather than the emptiest. Set it to "
        "keep whole cells free for large servers; the price is that memory bandwidth is spread worse.",
    ),
]

_TIMES: list[cfg.Opt] = [
    cfg.FloatOpt(
        "heartbeat",
        default=3.0,
        min=0.1,
        help="Seconds between two signs of life to the conductor, which also renew what the worker is doing. Raise "
        "it on clouds of thousands of hosts; keep it below a third of [operations] lease and service_down_time.",
    ),
    cfg.FloatOpt(
        "audit_interval",
        default=60.0,
        min=1.0,
        help="Seconds between two comparisons of book, tracker and hypervisor on each node. Lower it to hear sooner "
        "of guests that somebody else stopped; each costs one listing of the node and one call.",
    ),
    cfg.IntOpt(
        "max_operations",
        default=64,
        min=1,
        help="How many operations run at the same time on this host; more wait. Lower it where many spawns or "
        "snapshots at once are too much for the disk.",
    ),
    cfg.FloatOpt(
        "start_wait",
        default=60.0,
        min=0.0,
        help="Seconds that a start waits for servers to be reconciled with the book. After them work is taken, and "
        "only the servers that are still being reconciled have to wait. Raise it where removing a guest takes long.",
    ),
    cfg.FloatOpt(
        "stop_wait",
        default=10.0,
        min=0.0,
        help="Seconds that a stop lets running operations end. What has not ended is carried on from its step when "
        "the worker is back. Raise it to interrupt fewer; keep it below [DEFAULT] graceful_shutdown_timeout.",
    ),
    cfg.FloatOpt(
        "image_patience",
        default=60.0,
        min=0.0,
        help="Seconds that an image store that does not answer is tried again within one operation; half of the time "
        "that the operation has left is the most. Raise it where the store is restarted often.",
    ),
    cfg.IntOpt(
        "destroy_tries",
        default=3,
        min=1,
        help="How often the guest of a failed create or unshelve is removed before its place is kept as a leftover, "
        "which the audit ends. Raise it where the hypervisor fails now and then.",
    ),
]

OPTIONS: list[cfg.Opt] = [*_HYPERVISOR, *_PARTITION, *_TIMES]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options of group [compute]."""
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return [(GROUP, OPTIONS)]
