"""pinfold-conductor: runs operations; any number of them side by side."""

from __future__ import annotations


from oslo_config import cfg

from pinfold.conductor.service import ConductorService
from pinfold.conductor.settings import settings_from
from pinfold.db.session import Book
from pinfold.image.build import store_from
from pinfold.rpcapi import wire
from pinfold.runtime import Runtime


def build(conf: cfg.ConfigOpts, runtime: Runtime, transport: wire.Transport, book: Book) -> ConductorService:
    """The conductor as the configuration has it. Raises errors.ConfigurationError."""
    return ConductorService(
        book,
        transport,
        store_from(conf, runtime),
        runtime,
        settings_from(conf),
        compute_pin=conf.upgrade_levels.compute,
    )


def _build(argv, on_end):
    from pinfold.cmd import book, parts
    from pinfold.conf import conductor, image, operations
    from pinfold.rpcapi import transport
    from pinfold.runtime import RealRuntime

    runtime = RealRuntime()
    conf = parts.configure(
        "pinfold-conductor", argv, (book.register, conductor.register, image.register, operations.register, transport.register)
    )
    return conf, [build(conf, runtime, transport.connect(conf, runtime), book.book_from(conf, runtime))]


def main() -> int:
    from pinfold import concurrency
    import sys

    concurrency.choose(sys.argv[1:])
    from pinfold.cmd import plain

    return plain.run("pinfold-conductor", _build)
