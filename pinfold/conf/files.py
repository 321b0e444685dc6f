"""What stands in configuration files, as text: to look at what oslo.config passes over."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from oslo_config import cfg, iniparser

from pinfold.conf import opts
from pinfold.model import errors

_DEFAULT = "DEFAULT"


class Entry(msgspec.Struct, frozen=True):
    """A line ``name = value`` under ``[group]``."""

    path: str
    group: str
    name: str
    value: str

    @property
    def option(self) -> str:
        """Its option, as messages name it."""
        return f"[{self.group}] {self.name}"


def paths(conf: cfg.ConfigOpts) -> list[Path]:
    """The files that ``conf`` was read from, in their order."""
    found = [Path(name) for name in conf.config_file or ()]
    for folder in conf.config_dir or ():
        found += sorted(Path(folder).glob("*.conf"))
    return found


def read(path: Path) -> list[Entry]:
    """All entries of one file. Raises errors.ConfigurationError for one that cannot be read."""
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(str(path), sections).parse()
    except (OSError, UnicodeDecodeError, iniparser.ParseError) as error:
        raise errors.ConfigurationError(f"{path} cannot be read: {error}") from error
    return [
        Entry(str(path), group, name, value)
        for group, options in sections.items()
        for name, values in options.items()
        for value in values
    ]


def read_all(conf: cfg.ConfigOpts) -> list[Entry]:
    """The entries of all files of ``conf``."""
    return [entry for path in paths(conf) for entry in read(path)]


def registered(conf: cfg.ConfigOpts, group: str, name: str) -> bool:
    """Whether ``conf`` has the option."""
    if group == _DEFAULT:
        return name in conf
    return group in conf and isinstance(conf[group], cfg.ConfigOpts.GroupAttr) and name in conf[group]


def unknown(conf: cfg.ConfigOpts, entries: Iterable[Entry]) -> Iterator[Entry]:
    """What neither ``conf`` nor any process of Pinfold nor one of its libraries reads."""
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        key = entry.group, entry.name
        if key in seen or registered(conf, *key):
            continue
        seen.add(key)
        if key not in opts.known():
            yield entry


def meant(entry: Entry) -> str:
    """What its writer may have had in mind, as a sentence; empty when nothing is like it."""
    here = sorted({name for group, name in opts.known() if group == entry.group and "-" not in name})
    close: Sequence[str] = difflib.get_close_matches(entry.name, here, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    groups = sorted({group for group, name in opts.known() if name == entry.name})
    return f"It belongs to group [{groups[0]}]." if groups else ""


def is_ours(entry: Entry) -> bool:
    """Whether nobody but Pinfold has options in its group, or it is DEFAULT."""
    return entry.group in opts.ours()
