"""The packages and the rules for imports between them, from docstrings and pyproject.toml."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

from doc.source._ext import rst

ROOT = Path(__file__).resolve().parents[3]


def _words(path: Path) -> str:
    """The first paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0]


def packages() -> list[str]:
    """Packages and top-level modules of ``pinfold``, with what they say of themselves."""
    rows = []
    for path in sorted((ROOT / "pinfold").iterdir()):
        if (path / "__init__.py").exists():
            modules = [module.stem for module in sorted(path.glob("*.py")) if module.stem != "__init__"]
            rows.append((f"pinfold/{path.name}/", _words(path / "__init__.py"), ", ".join(modules)))
        elif path.suffix == ".py" and path.stem != "__init__":
            rows.append((f"pinfold/{path.name}", _words(path), ""))
    shown = [(rst.literal(name), rst.escaped(words), rst.escaped(modules)) for name, words, modules in rows]
    return rst.table(("Package", "What it is", "Modules"), shown, (22, 40, 38))


def contracts() -> list[str]:
    """What import-linter holds."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    lines = []
    for contract in found:
        lines += [f"**{contract['name']}.** {_contract(contract)}", ""]
    return lines


def _contract(contract: dict[str, Any]) -> str:
    if contract["type"] == "layers":
        layers = " > ".join(layer.replace(":", ",").replace("|", "or") for layer in contract["layers"])
        return f"From the top: {rst.literal(layers)}. Those joined by *or* never import each other."
    sources, targets = rst.literals(contract["source_modules"]), rst.literals(contract["forbidden_modules"])
    indirect = "" if contract.get("allow_indirect_imports") else ", not even through others"
    return f"Not from {sources}: {targets}{indirect}."
