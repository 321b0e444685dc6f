"""The application for a WSGI server of choice, from a configuration file."""

from __future__ import annotations

import pathlib

import httpx
import pytest

import pinfold.wsgi
from pinfold.model import errors
from tests.books import new_book, sqlite_url
from tests.http.cloud import Wsgi


def configuration(folder: pathlib.Path, **api: str) -> str:
    """A file of an API process, whose broker is away."""
    new_book(sqlite_url(folder)).engine.dispose()
    lines = [f"{name} = {value}" for name, value in api.items()]
    text = "\n".join(
        [
            "[DEFAULT]",
            "transport_url = rabbit://u:p@127.0.0.1:1/",
            "[database]",
            f"connection = {sqlite_url(folder)}",
            "[image]",
            f"path = {folder / 'images'}",
            "[api]",
            *lines,
        ]
    )
    (folder / "api.conf").write_text(text)
    return str(folder / "api.conf")


def test_it_is_made_when_it_is_asked_for(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pinfold.wsgi.FILES, configuration(tmp_path, auth_strategy="noauth"))
    application = pinfold.wsgi.application
    assert pinfold.wsgi.application is application
    client = httpx.Client(transport=Wsgi(application), base_url="http://cloud")
    assert client.get("/v2.1/servers").json() == {"servers": []}
    assert client.get("/healthz").status_code == 503
    assert client.get("/healthz").json() == {"database": "ok", "broker": "no answer"}


def test_with_keystone_a_token_is_needed_and_a_client_cannot_say_who_it_is(tmp_path: pathlib.Path) -> None:
    file = configuration(tmp_path, auth_strategy="keystone")
    with open(file, "a") as more:
        more.write("\n[keystone_authtoken]\nauth_type = none\nwww_authenticate_uri = http://127.0.0.1:1/v3\n")
    application = pinfold.wsgi.make_application(["--config-file", file])
    client = httpx.Client(transport=Wsgi(application), base_url="http://cloud")
    assert client.get("/v2.1/").status_code == 200
    assert client.get("/v2.1/servers").status_code == 401
    spoof = {"X-Identity-Status": "Confirmed", "X-User-Id": "u", "X-Project-Id": "p", "X-Roles": "admin"}
    assert client.get("/v2.1/servers", headers=spoof).status_code == 401
    assert client.get("/identity/v3").status_code in (401, 404)


def test_a_bad_value_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="auth_strategy"):
        pinfold.wsgi.make_application(["--config-file", configuration(tmp_path, auth_strategy="magic")])
