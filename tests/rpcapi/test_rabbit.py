"""What only a broker can do to us: be away, come back, refuse a queue, show a wrong certificate."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import amqp
import pytest

from pinfold.model.errors import ConfigurationError
from pinfold.rpcapi import transport, wire
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime
from tests.rpcapi.conftest import CALLER, configuration, worker_configuration
from tests.servers import Broker, free_ports, private_broker

ROOT = Path(__file__).parents[2]
SOON = 20.0


class Echo:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.arrived = threading.Event()

    @wire.exported
    def echo(self, context: Context, value: int) -> int:
        self.seen.append(value)
        self.arrived.set()
        return value


@contextmanager
def connected(url: str, **options: Any) -> Iterator[transport.RabbitTransport]:
    made = transport.connect(configuration(url, **options), RealRuntime())
    try:
        yield made
    finally:
        made.close()


@contextmanager
def served(
    at: transport.RabbitTransport, endpoint: Echo, topic: str = "compute", server: str = "n1"
) -> Iterator[None]:
    running = at.serve(topic, server, endpoint, "1.0")
    try:
        yield
    finally:
        running.stop()


def within(seconds: float, action: Any) -> Any:
    """Do it again until it works, but not for longer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except (wire.Undeliverable, wire.CallTimeout):
            if time.monotonic() > deadline:
                raise


def took(action: Any) -> float:
    start = time.monotonic()
    with pytest.raises(wire.Undeliverable):
        action()
    return time.monotonic() - start


@pytest.mark.parametrize("queues", ["transient", "durable", "quorum"])
def test_services_find_each_other_again_after_the_broker_was_killed(broker: Broker, queues: str) -> None:
    url, target, endpoint = broker.vhost(), wire.Target("restart", "1.0", "one"), Echo()
    with connected(url, queues=queues) as here, connected(url, queues=queues) as there:
        with served(there, endpoint, target.topic, "one"):
            here.warm_up(target.topic)
            assert here.call(CALLER, target, "echo", {"value": 1}, SOON) == 1
            broker.settle()
            broker.kill()
            try:
                assert not here.ping()
                assert took(lambda: here.call(CALLER, target, "echo", {"value": 2}, 60)) < 8
                assert took(lambda: here.cast(CALLER, target, "echo", {"value": 3})) < 5
                assert took(lambda: here.cast(CALLER, target, "echo", {"value": 4})) < 0.5
            finally:
                broker.restart()
            assert within(30, lambda: here.call(CALLER, target, "echo", {"value": 5}, 5)) == 5
            assert here.ping()
    assert endpoint.seen[0] == 1
    assert endpoint.seen[-1] == 5


@pytest.mark.parametrize(
    ("was", "asked"), [("transient", "quorum"), ("transient", "durable"), ("durable", "transient")]
)
def test_a_queue_of_another_kind_is_refused_at_start_and_keeps_what_waits_in_it(
    broker: Broker, was: str, asked: str
) -> None:
    """F109."""
    url, target, endpoint = broker.vhost(), wire.Target("compute", "1.0", "n1"), Echo()
    with connected(url, queues=was) as old:
        old.serve("compute", "n1", endpoint, "1.0").stop()
        old.cast(CALLER, target, "echo", {"value": 1})
        with connected(url, queues=asked) as new:
            with pytest.raises(
                ConfigurationError, match=r"queue compute .*\[rpc\] queues.*received.*current"
            ) as raised:
                new.serve("compute", "n1", Echo(), "1.0")
        assert "inequivalent arg" in raised.value.message
        with served(old, endpoint):
            assert endpoint.arrived.wait(SOON)


def test_one_queue_of_another_kind_is_named(broker: Broker) -> None:
    url = broker.vhost()
    user, password = broker.admin
    vhost = url.rpartition("/")[2]
    with amqp.Connection(
        f"127.0.0.1:{broker.port}", userid=user, password=password, virtual_host=vhost
    ) as raw:
        raw.channel().queue_declare("compute.n1", durable=True, auto_delete=False)
    with connected(url) as here:
        with pytest.raises(
            ConfigurationError, match=r"queue compute\.n1 .*'durable' for queue 'compute\.n1'"
        ):
            here.serve("compute", "n1", Echo(), "1.0")


def test_several_brokers_in_the_url_mean_quorum_queues() -> None:
    for url, quorum in [("rabbit://a:b@one/", False), ("rabbit://a:b@one,a:b@two/", True)]:
        conf = configuration(url)
        transport.connect(conf, RealRuntime())
        assert conf.oslo_messaging_rabbit.rabbit_quorum_queue is quorum


def test_a_wrong_password_is_a_start_up_error(broker: Broker) -> None:
    with connected(broker.url("admin", "wrong")) as here:
        with pytest.raises(ConfigurationError, match="refuses the account"):
            here.serve("compute", "n1", Echo(), "1.0")


def test_a_virtual_host_that_is_not_there_is_a_start_up_error(broker: Broker) -> None:
    with connected(broker.url() + "absent") as here:
        with pytest.raises(ConfigurationError, match="absent"):
            here.serve("compute", "n1", Echo(), "1.0")


@pytest.mark.parametrize("url", ["kafka://a:b@c/", "rabbit://a:b@c:port/", "nonsense"])
def test_a_url_that_is_not_of_a_rabbit_is_a_start_up_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="transport_url"):
        transport.connect(configuration(url), RealRuntime())


@pytest.mark.parametrize("host", ["", "a/b", "a:b"])
def test_a_host_that_cannot_be_part_of_a_queue_name_is_a_start_up_error(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\[DEFAULT\] host"):
        transport.connect(worker_configuration("rabbit://a:b@c/", tmp_path), RealRuntime(), host=host)


def test_a_worker_needs_a_place_for_locks() -> None:
    # In a process of its own: the place that another test named is remembered for ever.
    code = (
        "from pinfold import concurrency; concurrency.choose()\n"
        "from tests.rpcapi.conftest import RealRuntime, configuration, transport\n"
        "transport.connect(configuration('rabbit://a:b@c/'), RealRuntime(), host='h')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "[oslo_concurrency] lock_path must be set" in done.stderr.splitlines()[-1]


def test_the_queues_of_a_worker_bear_its_host(broker: Broker, tmp_path: Path) -> None:
    conf = worker_configuration(broker.url(), tmp_path)
    worker = transport.connect(conf, RealRuntime(), host="host-9")
    with served(worker, Echo(), "compute", "host-9"):
        worker.warm_up("compute")
        names = broker.control("list_queues", "name")
    worker.close()
    assert "reply_host-9:pinfold-compute." in names
    assert "compute_fanout_host-9:pinfold-compute." in names


# --- TLS ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate authority, ca.pem."""
    folder = tmp_path_factory.mktemp("tls")
    _openssl(
        folder, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"
    )
    return folder


def _openssl(folder: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)


def _certificate(folder: Path, name: str, alternative: str) -> None:
    _openssl(folder, f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
    (folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
    signing = f"-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.ext"
    _openssl(folder, f"x509 -req -in {name}.csr {signing} -out {name}.pem")


@contextmanager
def tls_broker(authority: Path, name: str, alternative: str) -> Iterator[str]:
    """The url of a broker with such a certificate."""
    _certificate(authority, name, alternative)
    (port,) = free_ports(1)
    lines = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": authority / "ca.pem",
        "ssl_options.certfile": authority / f"{name}.pem",
        "ssl_options.keyfile": authority / f"{name}.key",
    }
    with private_broker("".join(f"{key} = {value}\n" for key, value in lines.items())) as broker:
        user, password = broker.admin
        yield f"rabbit://{user}:{password}@127.0.0.1:{port}/"


def test_a_broker_with_the_right_certificate_is_spoken_to_over_tls(authority: Path) -> None:
    with tls_broker(authority, "right", "IP:127.0.0.1") as url:
        with connected(f"{url}?ssl=1&ssl_ca_file={authority / 'ca.pem'}") as here:
            with served(here, Echo()):
                assert here.call(CALLER, wire.Target("compute", "1.0", "n1"), "echo", {"value": 1}, SOON) == 1


def test_a_broker_whose_certificate_bears_another_name_is_not_spoken_to(authority: Path) -> None:
    with tls_broker(authority, "wrong", "DNS:elsewhere.example") as url:
        with connected(f"{url}?ssl=1&ssl_ca_file={authority / 'ca.pem'}") as here:
            with pytest.raises(ConfigurationError, match="certificate is not accepted"):
                here.serve("compute", "n1", Echo(), "1.0")
            with pytest.raises(wire.Undeliverable, match="certificate verify failed"):
                here.cast(CALLER, wire.Target("compute", "1.0", "n1"), "echo", {"value": 1})
            assert not here.ping()


def test_tls_without_an_authority_is_a_start_up_error() -> None:
    with pytest.raises(ConfigurationError, match="ssl_ca_file"):
        transport.connect(configuration("rabbit://a:b@c/?ssl=1"), RealRuntime())
