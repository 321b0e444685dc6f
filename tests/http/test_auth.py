"""Who is calling, and what the policy file says about it."""

from __future__ import annotations

import pathlib

import falcon
import pytest
from falcon import testing
from oslo_config import cfg

from pinfold.api import auth
from pinfold.api.app import ROUTES, make_app
from pinfold.api.faults import Unauthorized
from pinfold.api.policies import OWN_RULES, RULES, Policies, list_rules
from pinfold.model import errors
from pinfold.rpcapi.context import Context
from tests.http.cloud import Cloud


def request(**headers: str) -> falcon.Request:
    """A request with these headers."""
    wired = {name.replace("_", "-"): value for name, value in headers.items()}
    return falcon.Request(testing.create_environ(headers=wired))


@pytest.mark.parametrize(
    ("token", "user", "project", "roles"),
    [
        (None, "admin", "admin", ("admin", "manager", "member", "reader")),
        ("notused", "admin", "admin", ("admin", "manager", "member", "reader")),
        ("", "admin", "admin", ("admin", "manager", "member", "reader")),
        ("admin:demo", "admin", "demo", ("admin", "manager", "member", "reader")),
        ("admin:demo:reader", "admin", "demo", ("admin", "manager", "member", "reader")),
        ("ann:demo", "ann", "demo", ("member", "reader")),
        ("ann:demo:reader", "ann", "demo", ("reader",)),
        ("ann:demo:Manager, x", "ann", "demo", ("manager", "member", "reader", "x")),
        ("ann:demo:admin", "ann", "demo", ("admin", "manager", "member", "reader")),
    ],
)
def test_a_noauth_token_says_who_calls(
    token: str | None, user: str, project: str, roles: tuple[str, ...]
) -> None:
    asked = request() if token is None else request(X_Auth_Token=token)
    assert auth.noauth(asked, "req-1") == Context("req-1", user, project, roles)


@pytest.mark.parametrize(
    "token", ["ann", "ann:", ":demo", ":", "a" * 256 + ":demo", "ann:" + "p" * 256, "a\x7f:b"]
)
def test_other_tokens_are_401(cloud: Cloud, token: str) -> None:
    with pytest.raises(Unauthorized):
        auth.noauth(request(X_Auth_Token=token), "req-1")
    answer = cloud.client(token).get("/v2.1/servers")
    assert (answer.status_code, list(answer.json())) == (401, ["unauthorized"])
    assert answer.headers["WWW-Authenticate"]


def test_keystone_s_headers_say_who_calls() -> None:
    headers = {
        "X_Identity_Status": "Confirmed",
        "X_User_Id": "u",
        "X_Project_Id": "p",
        "X_Roles": "member,Reader",
    }
    assert auth.keystone(request(**headers), "req-1") == Context("req-1", "u", "p", ("member", "reader"))
    for missing in ("X_Identity_Status", "X_User_Id", "X_Project_Id"):
        fewer = {name: value for name, value in headers.items() if name != missing}
        with pytest.raises(Unauthorized):
            auth.keystone(request(**fewer), "req-1")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "cloud.example.org"])
def test_noauth_binds_loopback_only(host: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="auth_strategy"):
        auth.check_bind("noauth", host)
    auth.check_bind("keystone", host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_is_fine(host: str) -> None:
    auth.check_bind("noauth", host)


def test_every_route_that_is_not_public_has_a_rule_that_exists() -> None:
    for route in ROUTES:
        if not route.public and route.path != "/v2.1/servers/{server}/action":
            assert route.rule in RULES | OWN_RULES, route


def with_policy(folder: pathlib.Path, text: str) -> cfg.ConfigOpts:
    """A configuration with this policy file."""
    (folder / "policy.yaml").write_text(text)
    file = folder / "api.conf"
    file.write_text(f"[oslo_policy]\npolicy_file = {folder / 'policy.yaml'}\n")
    conf = cfg.ConfigOpts()
    conf(["--config-file", str(file)], project="pinfold", default_config_dirs=[])
    return conf


READER = Context("req-1", "rita", "demo", ("reader",))


def test_a_policy_file_is_honoured_and_read_again(tmp_path: pathlib.Path) -> None:
    policies = Policies(with_policy(tmp_path, '"os_compute_api:servers:delete": "role:reader"\n'))
    assert policies.allows("servers:delete", READER)
    (tmp_path / "policy.yaml").write_text('"os_compute_api:servers:delete": "!"\n')
    assert policies.allows("servers:delete", READER)
    policies.reload()
    assert not policies.allows("servers:delete", READER)


@pytest.mark.parametrize("text", ["[", '"context_is_admin": "rule:context_is_admin"', '"a": "rule:nope"'])
def test_a_policy_file_that_cannot_be_used_stops_the_service(
    tmp_path: pathlib.Path, text: str, cloud: Cloud
) -> None:
    with pytest.raises(errors.ConfigurationError, match="policy_file"):
        make_app(cloud.deps, with_policy(tmp_path, text))


def test_answers_are_remembered_for_the_caller_and_the_owner_only(cloud: Cloud) -> None:
    policies = Policies(cloud.conf)
    assert policies.allows("servers:show", READER, "demo")
    assert not policies.allows("servers:show", READER, "other")
    assert policies.allows("servers:show", READER, "demo")
    assert not policies.allows("servers:delete", READER, "demo")


def test_every_rule_says_what_it_is_for() -> None:
    assert all(rule.description for rule in list_rules())
