"""The Sphinx extension: a directive for each thing that is drawn from the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from doc.source._ext import (
    absent,
    api,
    book,
    client_differences,
    differences,
    error_codes,
    faults,
    layout,
    options,
    states,
)

Render = Callable[[], list[str]]

RENDERERS: dict[str, Render] = {
    "server-states": states.state_table,
    "transitions": states.transition_table,
    "operation-kinds": states.kind_table,
    "book-tables": book.tables,
    "rpc-methods": book.rpc_methods,
    "packages": layout.packages,
    "import-contracts": layout.contracts,
    "all-options": options.reference,
    "process-groups": options.process_groups,
    "api-routes": api.routes,
    "api-actions": api.actions,
    "api-actions-not-built": api.actions_not_built,
    "api-absent": absent.table,
    "audit-kinds": differences.table,
    "client-differences": client_differences.table,
    "api-errors": error_codes.table,
    "api-policies": api.policy_rules,
    "all-faults": faults.table,
}


class _Generated(SphinxDirective):
    """Parses what ``render`` makes as if it stood in the page."""

    def render(self) -> list[str]:
        """The lines."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        # the code is not a file of the documentation, so the page is read anew at each build
        self.env.note_reread()
        return self.parse_text_to_nodes("\n".join(self.render()) + "\n", allow_section_headings=True)


def _directive(render: Render) -> type[_Generated]:
    class Directive(_Generated):
        def render(self) -> list[str]:
            return render()

    return Directive


class _States(_Generated):
    """``.. states-picture:: alternative text``: nothing without graphviz; the table stands below it anyway."""

    required_arguments = 1
    final_argument_whitespace = True

    def render(self) -> list[str]:
        if "sphinx.ext.graphviz" not in self.env.app.extensions:
            return ["*The picture needs graphviz; this copy was built without it.*", ""]
        return states.picture(self.arguments[0])


class _ShownBy(_Generated):
    """``.. shown-by:: R1`` names the tests that carry the mark, and those that stand in its content."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def render(self) -> list[str]:
        more = [line.strip() for line in self.content if line.strip()]
        return faults.shown_by(self.arguments[0], more)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    for name, render in RENDERERS.items():
        app.add_directive(name, _directive(render))
    app.add_directive("states-picture", _States)
    app.add_directive("shown-by", _ShownBy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
