"""The transport between processes: oslo.messaging over RabbitMQ.

The only module that imports oslo.messaging. What it has to work around:

- oslo.messaging's ``retry`` defaults to waiting as long as the broker is away, and even with it the first
  call of a process waits for ever, because it must make its reply queue: so ``retry`` is always given, and
  ``warm_up`` makes that queue at the start of a service that calls.
- A cast to a queue that does not exist is lost without an error unless it is mandatory: so it always is.
- When a queue exists with another durability, oslo.messaging uses it as it is and only logs it: so queues
  are declared here first, with the same arguments, and a refusal ends the start.
- Without a CA file the name in the broker's certificate is not looked at: so one is demanded.
- After each message a consumer looks a dozen times, after 1, 2, 4 ... milliseconds, whether it has something to
  acknowledge late. RPC acknowledges at once, never late: so it waits at the socket, for a second at first.
"""

from __future__ import annotations

import logging
import os
import ssl
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import amqp.exceptions
import kombu
import kombu.exceptions
import msgspec
import oslo_messaging
import oslo_messaging.opts
from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._metrics import client as metrics
from oslo_messaging._tracing import client as tracing

from pinfold import concurrency
from pinfold.model import errors
from pinfold.rpcapi import dispatch, permissions, wire
from pinfold.rpcapi.context import Context
from pinfold.runtime import Runtime

concurrency.require()
amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN = 1.0

LOG = logging.getLogger(__name__)

_kombu: Any = kombu  # its typing is incomplete

_RABBIT = "oslo_messaging_rabbit"
#: A silent broker is given up after this many seconds (oslo.messaging's 60 is longer than a lease).
_HEARTBEAT = 15
#: Between tries to listen again after the broker was away (oslo.messaging's 30 is longer than a lease, in which a
#: worker that hears nothing is taken for deaf).
_LONGEST_PAUSE = 5
#: Once to find a dead connection, once on a new one. Never more: a cast is only a bell.
_RETRY = 1
#: After a cast found the broker away, others do not try for so long, to keep callers quick.
_AWAY = 2.0
_WARM_UP = 2.0
_NO_METHOD = ("NoSuchMethod", "UnsupportedVersion")
_REFUSED = (amqp.exceptions.PreconditionFailed, amqp.exceptions.AccessRefused, amqp.exceptions.NotAllowed)
_BROKER_ERRORS = (
    oslo_messaging.MessagingException,
    kombu.exceptions.KombuError,
    amqp.exceptions.AMQPError,
    OSError,
)


def register(conf: cfg.ConfigOpts) -> None:
    """Add oslo.messaging's options to ``conf``, with our defaults. Repeating it is harmless."""
    for group, options in oslo_messaging.opts.list_opts():
        conf.register_opts(options, group=group)
    # Read at every cast, but registered by oslo.messaging on its global configuration alone.
    conf.register_opts(metrics.oslo_messaging_metrics, group="oslo_messaging_metrics")
    conf.register_opts(tracing.oslo_messaging_tracing, group="oslo_messaging_tracing")
    conf.set_default("control_exchange", permissions.EXCHANGE)
    conf.set_default("heartbeat_timeout_threshold", _HEARTBEAT, group=_RABBIT)
    conf.set_default("rabbit_interval_max", _LONGEST_PAUSE, group=_RABBIT)


def connect(conf: cfg.ConfigOpts, runtime: Runtime, *, host: str | None = None) -> RabbitTransport:
    """A transport to the brokers of ``transport_url``; nothing is sent yet.

    ``host`` is given by a worker: the names of its queues then begin so that its account may be restricted
    to them (see ``permissions``). Raises ConfigurationError for settings that cannot work.
    """
    register(conf)
    try:
        url = oslo_messaging.TransportURL.parse(conf)
    except (oslo_messaging.InvalidTransportURL, ValueError) as error:
        raise errors.ConfigurationError(f"transport_url cannot be used: {error}") from error
    if url.transport not in ("rabbit", "kombu"):
        raise errors.ConfigurationError(f"transport_url must begin with rabbit://, not {url.transport}://")
    _choose_queues(conf, len(url.hosts))
    if host is not None:
        _name_queues(conf, host)
    return RabbitTransport(conf, url, runtime)


def _choose_queues(conf: cfg.ConfigOpts, brokers: int) -> None:
    kind = conf.rpc.queues
    if kind == "auto":
        kind = "quorum" if brokers > 1 else "transient"
    chosen = {
        "rabbit_quorum_queue": kind == "quorum",
        # Else a reply queue is lost with its broker, and with it every reply that is under way.
        "rabbit_transient_quorum_queue": kind == "quorum",
        "amqp_durable_queues": kind != "transient",
    }
    for option, value in chosen.items():
        conf.set_override(option, value, group=_RABBIT)
    conf.set_override("executor_thread_pool_size", conf.rpc.pool_size)


def _name_queues(conf: cfg.ConfigOpts, host: str) -> None:
    """Have the names of reply and fanout queues begin with the host instead of being random."""
    if not host or any(mark in host for mark in ":/"):
        raise errors.ConfigurationError(f"[DEFAULT] host = {host!r} cannot be part of a queue's name")
    locks = lockutils.get_lock_path(conf) or _beside_pid_file(conf)
    if not locks:
        raise errors.ConfigurationError(
            "[oslo_concurrency] lock_path must be set (a folder of this service alone), or [DEFAULT] pid_file"
        )
    # The lock that oslo.messaging takes reads the global configuration.
    Path(locks).mkdir(parents=True, exist_ok=True)
    lockutils.set_defaults(locks)
    conf.set_override("use_queue_manager", True, group=_RABBIT)
    conf.set_override("hostname", host, group=_RABBIT)
    # oslo.messaging counts in a file that all of the machine shares and that is named by these two: the folder,
    # which is this service's alone, keeps workers of one host name apart, and those of other users.
    folder = zlib.crc32(os.path.abspath(locks).encode())
    conf.set_override("processname", f"{permissions.PROCESS}.{folder:08x}", group=_RABBIT)


def _beside_pid_file(conf: cfg.ConfigOpts) -> str | None:
    return f"{conf.pid_file.removesuffix('.pid')}.locks" if conf.get("pid_file") else None


class _Endpoint:
    """What oslo.messaging dispatches to: the exported methods and nothing else."""

    def __init__(self, dispatcher: dispatch.Dispatcher) -> None:
        self.target = oslo_messaging.Target(version=dispatcher.version)
        self.exported = frozenset((*dispatcher.methods, dispatch.PING))
        for name in self.exported:
            setattr(self, name, _bound(dispatcher, name))


def _bound(dispatcher: dispatch.Dispatcher, method: str) -> Callable[..., dict[str, Any]]:
    def run(context: Any, **arguments: Any) -> dict[str, Any]:
        return dispatcher.invoke(method, context, arguments)

    return run


class _ExportedOnly(oslo_messaging.RPCAccessPolicyBase):  # type: ignore[misc]  # untyped library
    def is_allowed(self, endpoint: _Endpoint, method: str) -> bool:
        return method in endpoint.exported


class RabbitServer:
    """Consumers of one service, and a pool of threads that handle what they take."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def stop(self) -> None:
        """Take no more messages, then wait until the handlers in flight have ended. Safe to repeat."""
        self._server.stop()
        self._server.wait()


class RabbitTransport:
    """``wire.Transport`` over RabbitMQ."""

    def __init__(self, conf: cfg.ConfigOpts, url: Any, runtime: Runtime) -> None:
        self._conf = conf
        self._url = url
        self._runtime = runtime
        self._transport = oslo_messaging.get_rpc_transport(conf, url)
        self._client = oslo_messaging.get_rpc_client(
            self._transport,
            oslo_messaging.Target(),
            retry=_RETRY,
            transport_options=oslo_messaging.TransportOptions(at_least_once=True),
        )
        self._broker = _Broker(conf, url)
        self._away_until = float("-inf")

    def cast(self, context: Context, target: wire.Target, method: str, arguments: Mapping[str, Any]) -> None:
        """Send and forget. Raises Undeliverable: at once when nobody has ever listened there, or the broker
        was away a moment ago; after about three seconds when it is away, longer when it is silent."""
        if self._runtime.monotonic() < self._away_until:
            raise wire.Undeliverable(f"{method} to {_name(target)}: the broker was away a moment ago")
        try:
            self._prepared(target).cast(msgspec.to_builtins(context), method, **arguments)
        except oslo_messaging.MessageUndeliverable as error:
            raise _nobody(target) from error
        except _BROKER_ERRORS as error:
            self._away_until = self._runtime.monotonic() + _AWAY
            raise _not_sent(target, method, error) from error

    def call(
        self,
        context: Context,
        target: wire.Target,
        method: str,
        arguments: Mapping[str, Any],
        timeout: float,
    ) -> Any:
        """Send and wait for the result. Raises Undeliverable, CallTimeout, RemoteError, NoSuchMethod."""
        try:
            prepared = self._prepared(target, timeout=timeout)
            reply = prepared.call(msgspec.to_builtins(context), method, **arguments)
        except oslo_messaging.MessageUndeliverable as error:
            raise _nobody(target) from error
        except oslo_messaging.MessagingTimeout as error:
            message = f"no reply to {method} from {_name(target)} in {timeout:g} s"
            raise wire.CallTimeout(message) from error
        except oslo_messaging.RemoteError as error:
            kind = wire.NoSuchMethod if error.exc_type in _NO_METHOD else wire.RemoteError
            raise kind(f"{error.exc_type}: {error.value}") from error
        except _BROKER_ERRORS as error:
            raise _not_sent(target, method, error) from error
        return dispatch.result_of(reply)

    def serve(self, topic: str, server: str, endpoint: object, version: str) -> RabbitServer:
        """Answer messages for ``topic`` and for ``server`` of it; waits until the broker is there.

        Raises ConfigurationError when the broker refuses the account or a queue.
        """
        self._broker.declare(self._conf.control_exchange, (topic, f"{topic}.{server}"))
        running = oslo_messaging.get_rpc_server(
            self._transport,
            oslo_messaging.Target(topic=topic, server=server),
            [_Endpoint(dispatch.Dispatcher(endpoint, version))],
            access_policy=_ExportedOnly,
        )
        try:
            running.start()
        except oslo_messaging.MessagingException as error:
            raise errors.ConfigurationError(f"cannot listen at {topic}.{server}: {error}") from error
        return RabbitServer(running)

    def warm_up(self, topic: str) -> None:
        """Make the queue for replies, by a call that may fail; waits until the broker is there."""
        try:
            self.call(Context("req-warm-up"), wire.Target(topic, "1.0"), dispatch.PING, {}, _WARM_UP)
        except (errors.Unavailable, wire.RemoteError) as error:
            LOG.debug("Nobody answered the first call to %s: %s", topic, error)

    def ping(self) -> bool:
        """Whether a broker lets us in now."""
        return self._broker.answers()

    def close(self) -> None:
        """Give up the connections; servers must have been stopped."""
        self._transport.cleanup()

    def _prepared(self, target: wire.Target, **more: Any) -> Any:
        return self._client.prepare(topic=target.topic, server=target.server, version=target.version, **more)


class _Broker:
    """The brokers themselves: for what oslo.messaging does not do."""

    def __init__(self, conf: cfg.ConfigOpts, url: Any) -> None:
        self._options = conf[_RABBIT]
        self._query = url.query
        self._urls = [_address(url, host) for host in url.hosts] or ["amqp://guest:guest@127.0.0.1:5672//"]
        self._ssl = self._tls()

    def answers(self) -> bool:
        """Whether one of them lets us in now."""
        return any(self._opens(url) for url in self._urls)

    def declare(self, exchange: str, queues: tuple[str, ...]) -> None:
        """Declare the exchange and its queues exactly as oslo.messaging will, once the broker is there.

        Raises ConfigurationError when they exist with other arguments, or the account is not let in.
        """
        with self._connection(self._urls) as connection:
            try:
                connection.ensure_connection(errback=_wait_for_broker, interval_start=1, interval_max=5)
            except _REFUSED as error:
                raise errors.ConfigurationError(
                    f"the broker refuses the account of transport_url: {error.reply_text}"
                ) from error
            for queue in queues:
                self._declare_one(connection, exchange, queue)

    def _declare_one(self, connection: Any, exchange: str, queue: str) -> None:
        quorum = self._options.rabbit_quorum_queue
        durable = quorum or self._options.amqp_durable_queues
        place = _kombu.Exchange(exchange, type="topic", durable=durable, auto_delete=False)
        entity = _kombu.Queue(
            queue,
            exchange=place,
            routing_key=queue,
            durable=durable,
            auto_delete=False,
            queue_arguments={"x-queue-type": "quorum"} if quorum else {},
        )
        try:
            with connection.channel() as channel:
                entity(channel).declare()
        except amqp.exceptions.PreconditionFailed as error:
            raise errors.ConfigurationError(
                f"queue {queue} (exchange {exchange}) exists at the broker with other properties than [rpc] "
                f"queues asks for: {error.reply_text}; set [rpc] queues as it was, or give all services "
                f"another virtual host in transport_url"
            ) from error
        except _REFUSED as error:
            raise errors.ConfigurationError(
                f"the account of transport_url may not listen at queue {queue}: {error.reply_text}"
            ) from error

    def _opens(self, url: str) -> bool:
        try:
            with self._connection([url], connect_timeout=2.0) as connection:
                connection.connect()
        except _BROKER_ERRORS as error:
            LOG.debug("A broker does not answer: %s", error)
            return False
        return True

    def _connection(self, urls: list[str], **more: Any) -> Any:
        tls: Any = dict(self._ssl) if self._ssl else False
        return _kombu.Connection(
            ";".join(urls), ssl=tls, login_method=self._option("rabbit_login_method"), **more
        )

    def _tls(self) -> dict[str, Any]:
        """The same parameters as oslo.messaging uses. Raises ConfigurationError without a CA file."""
        if str(self._option("ssl")).lower() not in ("1", "true", "yes", "on"):
            return {}
        authority = self._option("ssl_ca_file")
        if not authority:
            raise errors.ConfigurationError(
                f"[{_RABBIT}] ssl_ca_file must be set when ssl is on, or the broker's name is not verified; "
                "for a certificate of a public authority, name the system's bundle"
            )
        made = {"ca_certs": authority, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None}
        if self._option("ssl_cert_file"):
            made |= {"certfile": self._option("ssl_cert_file"), "keyfile": self._option("ssl_key_file")}
        return made

    def _option(self, name: str) -> Any:
        """An option of the driver; what stands in the url wins, as in oslo.messaging."""
        return self._query.get(name) or self._options[name]


def _wait_for_broker(error: Exception, interval: float) -> None:
    if isinstance(error, ssl.SSLCertVerificationError):
        raise errors.ConfigurationError(f"the broker's certificate is not accepted: {error.verify_message}")
    LOG.warning("Waiting for the broker: %s", error)


def _address(url: Any, host: Any) -> str:
    user, password = quote(host.username or "guest", safe=""), quote(host.password or "guest", safe="")
    name = f"[{host.hostname}]" if ":" in host.hostname else host.hostname
    return f"amqp://{user}:{password}@{name}:{host.port or 5672}/{quote(url.virtual_host or '/', safe='')}"


def _nobody(target: wire.Target) -> wire.NobodyListens:
    return wire.NobodyListens(f"nobody has ever listened at {_name(target)}")


def _not_sent(target: wire.Target, method: str, error: Exception) -> wire.Undeliverable:
    return wire.Undeliverable(f"{method} to {_name(target)}: the broker did not take it: {error}")


def _name(target: wire.Target) -> str:
    return target.topic if target.server is None else f"{target.topic}.{target.server}"
