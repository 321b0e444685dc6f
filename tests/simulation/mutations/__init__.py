"""Faults put back into the product, one at a time, to show that the simulator finds them.

A mutation replaces a piece of a module's source text as that is imported, so it needs a Python process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

from tests.simulation.mutations.table import MUTATIONS, Mutation


class Stale(Exception):
    """The product's text is not what a mutation expects: bring the mutation up to date."""


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> object:  # type: ignore[override]  # never from a cache
        path = self.get_filename(fullname)
        text = self.get_data(path).decode()
        for old, new in self._mutation.modules[fullname]:
            if text.count(old) != 1:
                raise Stale(
                    f"mutation {self._mutation.name}: {text.count(old)} times in {fullname}, not once:\n{old}"
                )
            text = text.replace(old, new)
        return compile(text, path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._mutation.modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._mutation)
        return spec


def install(name: str) -> None:
    """From here on the mutated module is imported instead of the true one. Raises KeyError, Stale."""
    mutation = MUTATIONS[name]
    for module in mutation.modules:
        if module in sys.modules:
            raise Stale(f"{module} has been imported already")
    sys.meta_path.insert(0, _Finder(mutation))
