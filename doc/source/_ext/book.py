"""The tables of the book and the RPC methods, from the classes that define them."""

from __future__ import annotations

import inspect

import sqlalchemy as sa

from doc.source._ext import rst
from pinfold.db.models import Base
from pinfold.rpcapi import clients
from pinfold.rpcapi.versions import History


def tables() -> list[str]:
    """Every table: what a row is, and the keys that are rules."""
    rows = []
    for mapper in sorted(Base.registry.mappers, key=lambda mapper: str(mapper.local_table)):
        table = mapper.local_table
        assert isinstance(table, sa.Table)
        words = (inspect.getdoc(mapper.class_) or "").split("\n\n")[0]
        rows.append((rst.literal(table.name), rst.escaped(words), rst.literals(_keys(table))))
    return rst.table(("Table", "What a row is", "Keys"), rows, (16, 54, 30))


def _keys(table: sa.Table) -> list[str]:
    """The primary key, then what is unique besides."""
    found = [_columns(table.primary_key)]
    found += sorted(_columns(key) for key in table.constraints if isinstance(key, sa.UniqueConstraint))
    found += sorted(_columns(index) for index in table.indexes if index.unique)
    return list(dict.fromkeys(found))


def _columns(key: sa.PrimaryKeyConstraint | sa.UniqueConstraint | sa.Index) -> str:
    return "(" + ", ".join(column.name for column in key.columns) + ")"


def rpc_methods() -> list[str]:
    """Every method, who has it, and since which version."""
    rows = []
    for history, client in (
        (clients.CONDUCTOR, clients.ConductorClient),
        (clients.COMPUTE, clients.ComputeClient),
    ):
        rows += [
            (history.service, rst.literal(name), version, rst.escaped(_words(history, client, name)))
            for name, version in history.methods.items()
        ]
    return rst.table(("Service", "Method", "Since", "What it says"), rows, (14, 22, 10, 54))


def _words(history: History, client: type[object], name: str) -> str:
    method = getattr(client, name, None)
    if method is None:
        return "Do this operation's steps." if history is clients.COMPUTE else ""
    return (inspect.getdoc(method) or "").split("\n\n")[0]
