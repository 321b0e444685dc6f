"""The store that the configuration asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from pinfold.conf import image, samples
from pinfold.image.build import store_from
from pinfold.image.files import FileStore
from pinfold.image.glance import GlanceStore
from pinfold.image.store import Store
from pinfold.model import errors
from tests.image.conftest import RUNTIME, record
from tests.image.server import Gate, ImageApi, Keystone, served


def configured(tmp_path: Path, *lines: str) -> cfg.ConfigOpts:
    file = tmp_path / "pinfold.conf"
    file.write_text("\n".join(["[image]", *lines]))
    conf = cfg.ConfigOpts()
    image.register(conf)
    conf(["--config-file", str(file)], default_config_files=[], default_config_dirs=[])
    return conf


def test_files_are_kept_where_the_configuration_says(tmp_path: Path) -> None:
    store = store_from(configured(tmp_path, f"path = {tmp_path}/kept", "sync = false"), RUNTIME)
    assert isinstance(store, FileStore)
    store.upload(store.create(record("x")).id, [b"data"])
    assert FileStore(RUNTIME, f"{tmp_path}/kept").get("x").status == "active"


def test_an_image_service_is_used_with_a_fixed_token(tmp_path: Path, api: ImageApi, endpoint: str) -> None:
    conf = configured(tmp_path, "store = glance", f"endpoint = {endpoint}", "token = admin:admin:admin")
    store = store_from(conf, RUNTIME)
    assert isinstance(store, GlanceStore)
    assert store.list() == []
    assert api.tokens == {"admin:admin:admin"}


def test_an_image_service_is_used_without_a_token(tmp_path: Path, api: ImageApi, endpoint: str) -> None:
    conf = configured(tmp_path, "store = glance", f"endpoint = {endpoint}", "auth_type = none")
    assert store_from(conf, RUNTIME).list() == []
    assert api.tokens <= {None, "notused"}


def test_without_keystone_an_image_service_needs_an_endpoint(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="endpoint must be set"):
        store_from(configured(tmp_path, "store = glance"), RUNTIME)


def test_an_unknown_kind_of_authentication_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="carrier-pigeon"):
        store_from(configured(tmp_path, "store = glance", "auth_type = carrier-pigeon"), RUNTIME)


@pytest.fixture
def keystone(gate: Gate, api: ImageApi, tmp_path: Path) -> Keystone:
    gate.application = Keystone(api, gate.address)
    return gate.application


def authenticated(tmp_path: Path, gate: Gate, *lines: str) -> Store:
    """A store whose place and token come from Keystone."""
    who = ["username = u", "password = p", "user_domain_id = default", "project_id = p"]
    where = ["store = glance", "auth_type = v3password", f"auth_url = {gate.address}/identity/v3"]
    return store_from(configured(tmp_path, *where, *who, *lines), RUNTIME)


def test_keystone_gives_the_token_and_says_where_the_image_service_is(
    tmp_path: Path, gate: Gate, keystone: Keystone
) -> None:
    store = authenticated(tmp_path, gate)
    store.upload(store.create(record("x")).id, [b"data"])
    assert b"".join(store.download("x")) == b"data"
    assert keystone.tokens == ["token-0"]


def test_a_token_that_was_revoked_is_replaced(tmp_path: Path, gate: Gate, keystone: Keystone) -> None:
    store = authenticated(tmp_path, gate)
    store.create(record("x"))
    keystone.revoke()
    assert store.get("x").id == "x"


def test_a_token_that_was_revoked_breaks_no_upload(tmp_path: Path, gate: Gate, keystone: Keystone) -> None:
    store = authenticated(tmp_path, gate)
    store.create(record("x"))
    keystone.revoke()
    assert store.upload("x", (piece for piece in [b"da", b"ta"])).size == 4


def test_a_catalog_without_the_image_service_is_said_with_what_was_looked_for(
    tmp_path: Path, gate: Gate, keystone: Keystone
) -> None:
    with pytest.raises(errors.ConfigurationError, match="elsewhere"):
        authenticated(tmp_path, gate, "region_name = elsewhere")


def test_keystone_may_come_up_after_us(tmp_path: Path, api: ImageApi) -> None:
    late = Gate()
    late.application = Keystone(api, late.address)
    store = authenticated(tmp_path, late)
    with pytest.raises(errors.Unavailable, match="Keystone"):
        store.list()
    with served(late):
        assert store.list() == []


def test_every_option_says_what_it_is_for_and_when_to_change_it() -> None:
    for group, options in image.OPTIONS.items():
        for option in options:
            assert len(option.help or "") > 80, f"[{group}] {option.name}"
    assert {"auth_type", "auth_url", "username"} <= {
        option.name.replace("-", "_") for _group, options in samples.keystone() for option in options
    }
