"""pinfold-all-in-one: API, conductor and the workers of some fake hosts in one process, without a broker."""

from __future__ import annotations

from pinfold.cmd import api, compute, conductor
from pinfold.rpcapi.local import Hub, LocalTransport


def _build(argv, on_end):
    from pinfold.cmd import book, parts
    from pinfold.conf import api as capi, compute as ccompute, conductor as cconductor, image, operations, virt
    from pinfold.runtime import RealRuntime

    runtime = RealRuntime()
    conf = parts.configure(
        "pinfold-all-in-one",
        argv,
        (book.register, capi.register, ccompute.register, cconductor.register, image.register, operations.register, virt.register),
    )
    the_book = book.book_from(conf, runtime)
    transport = LocalTransport(Hub(runtime, conf.rpc.pool_size))
    hosts = conf.compute.nodes or [conf.host]
    return conf, [
        conductor.build(conf, runtime, transport, the_book),
        *(compute.build(conf, runtime, transport, on_end, host) for host in hosts),
        api.build(conf, runtime, transport, the_book),
    ]


def main() -> int:
    from pinfold import concurrency
    import sys

    concurrency.choose(sys.argv[1:])
    from pinfold.cmd import plain

    return plain.run("pinfold-all-in-one", _build)
