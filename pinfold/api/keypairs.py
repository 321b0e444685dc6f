"""``/os-keypairs``: public keys of users, by name."""

from __future__ import annotations

from typing import Any

from oslo_db import exception as db_errors

from pinfold.api import query as queries
from pinfold.api.call import Call, Reply
from pinfold.api.listing import allowed, limit_of, next_link
from pinfold.api.server_views import micros
from pinfold.db import keypairs as book_keypairs
from pinfold.db import quotas as book_quotas
from pinfold.db.keypairs import KeypairRow
from pinfold.db.session import may_be_done
from pinfold.model import errors, quotas

LIST_PARAMETERS = {"user_id": 10, "limit": 35, "marker": 35}
ONE_PARAMETERS = {"user_id": 10}


def index(call: Call) -> dict[str, Any]:
    """A user's keypairs, in order of their names."""
    query = allowed(call, LIST_PARAMETERS)
    user = _user(call, query)
    limit = limit_of(call) if call.minor >= 35 else None
    marker = queries.last(query, "marker")
    rows = call.deps.book.read(lambda session: book_keypairs.listed(session, user, limit, marker))
    if rows is None:
        raise errors.InvalidRequest(f"marker [{str(marker)[:100]}] not found", code="marker-not-found")
    shown: dict[str, Any] = {"keypairs": [{"keypair": _brief(call, row)} for row in rows]}
    if rows and len(rows) == limit:
        shown["keypairs_links"] = [next_link(call, "/v2.1/os-keypairs", rows[-1].name)]
    return shown


def show(call: Call, keypair: str) -> dict[str, Any]:
    """One keypair."""
    user = _user(call, allowed(call, ONE_PARAMETERS))
    row = _found(call, user, keypair)
    return {
        "keypair": _brief(call, row)
        | {
            "user_id": row.user_id,
            "id": row.id,
            "created_at": micros(row.created_at),
            "updated_at": None,
            "deleted": False,
            "deleted_at": None,
        }
    }


def create(call: Call) -> Reply:
    """Keep a public key; without one (before 2.92), make a pair and tell the private key, this once."""
    wanted = call.body["keypair"]
    user = wanted.get("user_id") or call.user
    call.authorize(call.project, user)
    name, type_ = wanted["name"], wanted.get("type", "ssh")
    private = None
    from pinfold.api import keys

    if "public_key" in wanted:
        public = wanted["public_key"]
    else:
        private, public = keys.generated(type_)
    row = KeypairRow(0, user, name, type_, public, keys.fingerprint(type_, public), 0.0)
    call.deps.book.write(lambda session: _write(session, call, row))
    shown = _brief(call, row) | {"user_id": user} | ({"private_key": private} if private else {})
    return Reply({"keypair": shown}, status=201 if call.minor >= 2 else 200)


def _write(session: Any, call: Call, row: KeypairRow) -> None:
    if may_be_done(session):
        known = book_keypairs.get(session, row.user_id, row.name)
        if known is not None and known.public_key == row.public_key:
            return
    book_quotas.lock(session, "", row.user_id)
    may = book_quotas.limits(session, call.deps.settings.quotas, call.project, row.user_id)
    used = {"key_pairs": book_quotas.keypairs_of(session, row.user_id)}
    quotas.require("user", may.project | may.user, used, {"key_pairs": 1})
    try:
        book_keypairs.add(session, row.user_id, row.name, row.type, row.public_key, row.fingerprint)
    except db_errors.DBDuplicateEntry:
        raise errors.Conflict(f"Key pair '{row.name}' already exists.", code="keypair-exists") from None


def delete(call: Call, keypair: str) -> Reply:
    """Forget it; servers made with it keep its name."""
    user = _user(call, allowed(call, ONE_PARAMETERS))
    gone = _is_name(keypair) and call.deps.book.write(
        lambda session: book_keypairs.delete(session, user, keypair)
    )
    if not gone:
        raise _not_found(user, keypair)
    return Reply(status=204 if call.minor >= 2 else 202)


def _user(call: Call, query: queries.Query) -> str:
    """Whose keypairs: the caller's, or (for an admin) those of ``user_id``."""
    user = queries.last(query, "user_id") or call.user
    call.authorize(call.project, user)
    return user


def _found(call: Call, user: str, name: str) -> KeypairRow:
    row = None
    if _is_name(name):
        row = call.deps.book.read(lambda session: book_keypairs.get(session, user, name))
    if row is None:
        raise _not_found(user, name)
    return row


def _is_name(name: str) -> bool:
    return len(name) <= 255 and "\0" not in name


def _not_found(user: str, name: str) -> errors.NotFound:
    return errors.NotFound(f"Keypair {name[:100]} not found for user {user[:100]}", code="keypair-not-found")


def _brief(call: Call, row: KeypairRow) -> dict[str, Any]:
    shown = {"name": row.name, "public_key": row.public_key, "fingerprint": row.fingerprint}
    return shown | ({"type": row.type} if call.minor >= 2 else {})
