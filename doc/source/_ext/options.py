"""The configuration reference: every option of ``pinfold.conf``, with its own help."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

from oslo_config import cfg

from doc.source._ext import rst
from pinfold import conf as package
from pinfold.conf import rpc as conf_rpc
from pinfold.conf import service as conf_service


def groups() -> dict[str, list[cfg.Opt]]:
    """Options by group, DEFAULT first."""
    found: dict[str, list[cfg.Opt]] = {"DEFAULT": []}
    for module in pkgutil.iter_modules(package.__path__):
        for group, options in _of_module(importlib.import_module(f"{package.__name__}.{module.name}")):
            known = found.setdefault(str(group), [])
            known.extend(option for option in options if option not in known)
    return found


def _of_module(module: Any) -> Iterable[tuple[object, Iterable[cfg.Opt]]]:
    if hasattr(module, "list_opts"):
        return [(group or "DEFAULT", options) for group, options in module.list_opts()]
    options = getattr(module, "OPTIONS", {})
    return options.items() if isinstance(options, dict) else ()


def reference() -> list[str]:
    """All groups."""
    lines: list[str] = []
    for group, options in groups().items():
        lines += [f".. oslo.config:group:: {group}", ""]
        for option in options:
            lines += _option(option)
    return lines


def _option(option: cfg.Opt) -> list[str]:
    body = [f":Type: {_type(option)}", f":Default: {_default(option)}"]
    for name, word in (("min", "Least"), ("max", "Most")):
        value = getattr(option.type, name, None)
        if value is not None:
            body.append(f":{word}: {value}")
    if getattr(option, "mutable", False):
        body.append(":Reload: SIGHUP is enough")
    body.append("")
    for paragraph in (option.help or "").strip().split("\n\n"):
        body += [rst.escaped(paragraph), ""]
    choices: dict[Any, str | None] = getattr(option.type, "choices", None) or {}
    for value, text in choices.items():
        body += [f"- {rst.literal(value)}" + (f": {rst.escaped(text)}" if text else "")]
    return [f".. oslo.config:option:: {option.dest}", "", *rst.indented(body), ""]


def _type(option: cfg.Opt) -> str:
    shown = getattr(option.type, "type_name", "value").removesuffix(" value")
    return f"{shown}, may stand several times" if option.multi else str(shown)


def _default(option: cfg.Opt) -> str:
    default = option.default if option.sample_default is None else option.sample_default
    if default is None or default == []:
        return "unset"
    return rst.literal(str(default).lower() if isinstance(default, bool) else default)


#: Groups of oslo.messaging that nothing here needs.
_UNUSED = {f"oslo_messaging_{name}" for name in ("kafka", "metrics", "notifications", "tracing")}

#: The options that every process has, then what each program adds: as in ``pinfold.cmd.incarnation``.
PROCESSES = ("api", "conductor", "compute", "all_in_one")


def process_groups() -> list[str]:
    """Which groups each process reads."""
    rows = []
    for name in PROCESSES:
        conf = cfg.ConfigOpts()
        conf_service.register(conf)
        conf_rpc.register(conf)
        program = importlib.import_module(f"pinfold.cmd.assembly.{name}").PROGRAM
        for register in program.registers:
            register(conf)
        found = ["DEFAULT", *sorted(set(map(str, conf._groups)) - _UNUSED)]
        rows.append((rst.literal(f"pinfold-{name.replace('_', '-')}"), rst.literals(found)))
    return rst.table(("Process", "Groups"), rows, (25, 75))
