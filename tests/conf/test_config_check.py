"""pinfold-manage config check, as an operator uses it before anything is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pinfold.cmd.manage.main import main
from pinfold.conf import cloud, files

BROKER = "rabbit://pinfold:secret@broker:5672/pinfold"
BOOK = "postgresql://pinfold:secret@db/pinfold"
FILES = {
    "api": f"[DEFAULT]\nhost = api-1\ntransport_url = {BROKER}\n[database]\nconnection = {BOOK}\n"
    "[api]\nauth_strategy = noauth\n",
    "conductor": f"[DEFAULT]\nhost = conductor-1\ntransport_url = {BROKER}\n[database]\nconnection = {BOOK}\n",
    "compute-1": f"[DEFAULT]\nhost = n1\ntransport_url = {BROKER}\n[compute]\ncpu_dedicated_set = 2-7\n",
    "compute-2": f"[DEFAULT]\nhost = n2\ntransport_url = {BROKER}\n[compute]\ncpu_dedicated_set = 2-7\n",
}
Check = Callable[..., str]


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Writes the files of a good cloud, each with what is given for it at its end, and checks them; what is said."""

    def run(*arguments: str, code: int = 0, **more: str) -> str:
        for name, text in FILES.items():
            path = tmp_path / f"{name}.conf"
            path.write_text(text + more.get(name.replace("-", "_"), ""))
            path.chmod(0o640)
        names = [str(tmp_path / f"{name}.conf") for name in FILES]
        found = main(["config", "check", *arguments, *names])
        said = capsys.readouterr()
        assert found == code, said.out + said.err
        return said.out.replace(f"{tmp_path}/", "")

    return run


def test_a_good_cloud_has_nothing_to_say(check: Check) -> None:
    assert check() == ""


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (
            "compute_2",
            "[DEFAULT]\nhost = n1\n",
            "[DEFAULT] host = n1 in compute-1.conf and in compute-2.conf",
        ),
        ("compute_2", "[compute]\nnodes = n3,n1\n", "[compute] nodes has n1 in compute-1.conf (host n1)"),
        ("compute_1", "[DEFAULT]\ntransport_url = rabbit://a:b@other:5672/pinfold\n", "transport_url"),
        ("compute_1", "[DEFAULT]\ntransport_url = rabbit://a:b@broker:5672/other\n", "transport_url"),
        ("compute_1", "[DEFAULT]\ncontrol_exchange = x\n", "[DEFAULT] control_exchange is"),
        ("compute_1", "[oslo_messaging_rabbit]\nssl = true\n", "[oslo_messaging_rabbit] ssl is"),
        (
            "compute_1",
            "[rpc]\nqueues = quorum\n",
            "[rpc] queues is auto in api.conf and quorum in compute-1.conf",
        ),
        (
            "conductor",
            "[operations]\nlease = 30\n",
            "[operations] lease is 15.0 in api.conf and 30.0 in conductor",
        ),
        (
            "compute_1",
            "[operations]\nlease = 30\n",
            "[operations] lease is 15.0 in api.conf and 30.0 in compute-1",
        ),
        ("api", "[operations]\nservice_down_time = 30\n", "[operations] service_down_time is"),
        ("api", "[DEFAULT]\ndefault_availability_zone = a\n", "default_availability_zone is"),
        ("compute_1", "[image]\npath = /elsewhere\n", "[image] path is"),
        (
            "conductor",
            "[database]\nconnection = sqlite:////x\n",
            "[database] connection (but for the account) is",
        ),
        ("compute_1", f"[database]\nconnection = {BOOK}\n", "[database] stands in compute-1.conf"),
        ("compute_1", "[compute]\ncpu_shared_set = 0-2\n", "CPUs 2 stand in [compute] cpu_shared_set"),
        (
            "compute_1",
            "[compute]\nheartbeat = 20\n",
            "[compute] heartbeat (in compute-1.conf) = 20 is not below",
        ),
        (
            "conductor",
            "[compute]\nnodes = x\n[api]\nauth_strategy = noauth\n",
            "is a whole cloud in one process",
        ),
        ("compute_1", "[compute]\nheartbeet = 1\n", "(compute): [compute] heartbeet"),
        ("compute_1", "[oslo_messaging_rabbit]\nssl_ca = x\n", "[oslo_messaging_rabbit] ssl_ca"),
        ("api", "[api]\nhost = 0.0.0.0\n", "api.conf (api): [api] host = 0.0.0.0 is not a loopback address"),
        ("api", "[DEFAULT]\ndebug = perhaps\n", "[DEFAULT] debug = perhaps"),
    ],
)
def test_what_does_not_go_together_is_an_error(check: Check, file: str, text: str, said: str) -> None:
    errors = [line for line in check(code=1, **{file: text}).splitlines() if line.startswith("error: ")]
    assert any(said in line for line in errors), errors


def test_accounts_may_differ_and_no_password_is_ever_shown(check: Check) -> None:
    own = {
        "compute_1": "[DEFAULT]\ntransport_url = rabbit://n1:hush@broker:5672/pinfold\n",
        "conductor": "[database]\nconnection = postgresql://other:hush@db/pinfold\n",
    }
    assert check(**own) == ""
    said = check(code=1, compute_2="[DEFAULT]\ntransport_url = rabbit://n2:hush@elsewhere/\n", **own)
    assert "hush" not in said
    assert "secret" not in said


def test_a_file_with_a_password_that_everybody_can_read_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "compute.conf"
    path.write_text(FILES["compute-1"])
    path.chmod(0o644)
    assert main(["config", "check", str(path)]) == 0
    assert f"warning: {path} holds a password" in capsys.readouterr().out


def test_findings_as_json(check: Check) -> None:
    assert json.loads(check("--json")) == []
    (found,) = json.loads(check("--json", code=1, compute_1="[rpc]\nqueues = durable\n"))
    assert found["error"] is True
    assert "[rpc] queues" in found["text"]


def test_a_file_that_all_read_is_given_before_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared, own = tmp_path / "shared.conf", tmp_path / "n1.conf"
    shared.write_text(f"[DEFAULT]\ntransport_url = {BROKER}\n")
    own.write_text("[DEFAULT]\nhost = n1\n[compute]\ncpu_shared_set = 0,1\ncpu_dedicated_set = 1\n")
    assert main(["--config-file", str(shared), "config", "check", str(own)]) == 1
    said = capsys.readouterr().out
    assert "CPUs 1 stand in" in said
    assert f"warning: {shared} holds a password" not in said  # the cloud is looked at once its parts are good


def test_what_kind_a_file_is_for_can_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.conf"
    path.write_text("[DEFAULT]\nhost = n1\n")
    assert main(["config", "check", f"compute={path}"]) == 0
    assert main(["config", "check", str(path)]) == 1
    assert "(conductor): [database] connection is not set" in capsys.readouterr().out
    assert main(["config", "check", f"kitchen={path}"]) == 2


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.conf", "[compute]\nnodes = x\n", "compute"),
        ("a.conf", "[compute]\nnodes = x\n[api]\nport = 1\n", "all-in-one"),
        ("a.conf", "[api]\nport = 1\n", "api"),
        ("compute-host-1.conf", "[DEFAULT]\nhost = x\n", "compute"),
        ("all-in-one.conf", "[DEFAULT]\nhost = x\n", "all-in-one"),
        ("a.conf", "[DEFAULT]\nhost = x\n", "conductor"),
    ],
)
def test_the_kind_is_told_by_the_groups_or_else_by_the_name(
    tmp_path: Path, name: str, text: str, kind: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert cloud.kind_of(path, files.read(path)) == kind


def test_a_file_that_is_not_there_or_none_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.conf"
    broken.write_text("host = x\n")
    for path in (tmp_path / "absent.conf", broken):
        assert main(["config", "check", str(path)]) == 2
        assert str(path) in capsys.readouterr().err


def test_options_that_must_be_equal_are_known_by_their_help() -> None:
    assert {
        ("operations", "lease"),
        ("operations", "service_down_time"),
        ("image", "store"),
        ("image", "path"),
        ("rpc", "queues"),
        ("quota", "cores"),
        ("DEFAULT", "shelved_offload_time"),
        ("DEFAULT", "default_availability_zone"),
    } <= set(cloud.agreed())


def test_the_example_of_a_cloud_on_many_hosts_has_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "etc" / "pinfold" / "multi-host"
    assert main(["config", "check", *map(str, sorted(example.glob("*.conf")))]) == 0
    assert "error" not in capsys.readouterr().out
