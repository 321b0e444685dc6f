"""The values of ``X-Pinfold-Error``: found where the code raises them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

import pinfold.api
import pinfold.db
import pinfold.image
import pinfold.model
import pinfold.rpcapi
from doc.source._ext import rst
from pinfold.api import faults
from pinfold.model import errors

# What an API request can run into. (rpcapi.transport needs a concurrency mode, and raises what wire declares.)
_PACKAGES = (pinfold.api, pinfold.db, pinfold.image, pinfold.model, pinfold.rpcapi)
_SKIPPED = frozenset({"pinfold.rpcapi.transport", "pinfold.rpcapi.local", "pinfold.db.migrations"})


class Code(msgspec.Struct, frozen=True, order=True):
    """A code, the status it comes with, and the message it comes with (one of them)."""

    code: str
    status: int
    message: str


def _status(kind: type[errors.PinfoldError]) -> int | None:
    return next((status for known, status in faults._STATUS if issubclass(kind, known)), None)


def _modules() -> Iterator[tuple[str, Path]]:
    for package in _PACKAGES:
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if found.name not in _SKIPPED and not found.ispkg:
                yield found.name, Path(package.__path__[0]) / f"{found.name.rpartition('.')[2]}.py"


def _classes() -> dict[str, type[errors.PinfoldError]]:
    """Every class of error by its bare name."""
    for name, _path in _modules():
        importlib.import_module(name)
    found: dict[str, type[errors.PinfoldError]] = {}
    waiting = [errors.PinfoldError]
    while waiting:
        kind = waiting.pop()
        found.setdefault(kind.__name__, kind)
        waiting.extend(kind.__subclasses__())
    return found


def _text(node: ast.expr) -> str:
    """A message with its holes as ``...``."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "..."


def _constant(node: ast.expr | None, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _in_call(
    call: ast.Call, kinds: dict[str, type[errors.PinfoldError]], names: dict[str, str]
) -> Code | None:
    """The code that a call makes an error of, if it does."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "refusal" and len(call.args) == 2:
        code = _constant(call.args[0], names)
        return Code(code, 400, _text(call.args[1])) if code else None
    if name == "answer" and len(call.args) == 4 and isinstance(call.args[1], ast.Constant):
        code = _constant(call.args[2], names)
        return Code(code, int(str(call.args[1].value)), _text(call.args[3])) if code else None
    if name not in kinds or not call.args:
        return None
    kind = kinds[name]
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
    code = kind.code if given is None else _constant(given, names)
    status = _status(kind)
    return Code(code, status, _text(call.args[0])) if code and status else None


def codes() -> list[Code]:
    """Every code with its status, once, with the longest of its messages."""
    kinds = _classes()
    found: dict[tuple[str, int], str] = {}
    for _name, path in _modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            target.id: str(node.value.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            code = _in_call(node, kinds, names) if isinstance(node, ast.Call) else None
            if code is not None:
                known = found.get((code.code, code.status), "")
                found[code.code, code.status] = max(known, code.message, key=len)
    found["no-such-url", 404] = "The resource could not be found."
    return sorted(Code(code, status, message) for (code, status), message in found.items())


def table() -> list[str]:
    """All codes."""
    rows = [(rst.literal(code.code), str(code.status), rst.escaped(code.message)) for code in codes()]
    return rst.table(("X-Pinfold-Error", "Status", "Message (... is filled in)"), rows, (30, 10, 60))
