"""The part of stack.sh and unstack.sh that needs the virtual environment."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import httpx

from devstack import cloud as clouds
from devstack import processes, story, topology
from devstack.client import ApiError, NotReached
from devstack.layout import Layout, Options, StackError
from devstack.progress import Progress

#: Printed last, each to be copied as it stands.
TRY = (
    "server create --flavor p2 --image tiny --nic none --wait mine",
    "server shelve --offload --wait mine",
    "server unshelve --wait mine",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="devstack")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "resume", "down"):
        command = commands.add_parser(name)
        command.add_argument("--dir", type=Path, required=True)
        command.add_argument("--began", type=float)
        if name == "up":
            _shape(command)
        if name == "down":
            command.add_argument("--wipe", action="store_true")
    return parser.parse_args()


def _shape(command: argparse.ArgumentParser) -> None:
    command.add_argument("--multi", action="store_true")
    command.add_argument("--hosts", type=int, default=3)
    command.add_argument("--conductors", type=int, default=2)
    command.add_argument("--brokers", type=int, default=1)
    command.add_argument("--database", default="postgresql")
    command.add_argument("--driver", default="fake")
    command.add_argument("--topology")
    command.add_argument("--transport-url")
    command.add_argument("--database-url")
    command.add_argument("--port", type=int, default=8774)
    command.add_argument("--set", action="append", default=[])
    command.add_argument("--no-story", action="store_true")


def up(arguments: argparse.Namespace, progress: Progress) -> None:
    layout = Layout(arguments.dir)
    options = Options(
        multi=arguments.multi,
        hosts=arguments.hosts,
        conductors=arguments.conductors,
        brokers=arguments.brokers,
        database=arguments.database,
        driver=arguments.driver,
        topology=_topology(arguments.topology),
        transport_url=arguments.transport_url,
        database_url=arguments.database_url,
        port=arguments.port,
        settings=tuple(arguments.set),
    )
    cloud = clouds.prepare(layout, options, progress)
    cloud.up(migrate=True)
    with progress.step("flavors and the image"):
        cloud.seed()
    if not arguments.no_story:
        with cloud.client() as client:
            story.tell(client, layout.faults)
    _say_what_next(layout, options)


def _topology(path: str | None) -> str | None:
    """The text of a usable topology file; the cloud keeps a copy, so that it does not depend on the file."""
    if path is None:
        return None
    topology.machine(path)
    return Path(path).read_text()


def _say_what_next(layout: Layout, options: Options) -> None:
    print(f"\nThe cloud answers on http://127.0.0.1:{options.port} until ./unstack.sh stops it. To try it:\n")
    for command in TRY:
        print(f". {layout.openrc} && openstack {command}")


def resume(arguments: argparse.Namespace, progress: Progress) -> None:
    cloud = clouds.open_cloud(Layout(arguments.dir), progress)
    if cloud is None:
        raise StackError(f"there is no cloud in {arguments.dir}; ./stack.sh --dir {arguments.dir} starts one")
    begun = cloud.resume()
    progress.say(f"started {', '.join(begun)}" if begun else "nothing was dead")


def down(arguments: argparse.Namespace, progress: Progress) -> None:
    layout = Layout(arguments.dir)
    cloud = clouds.open_cloud(layout, progress)
    if cloud is None:
        progress.say(f"there is no cloud in {layout.root}")
        return
    if any(processes.members(process) for process in cloud.state.processes.values()):
        with progress.step("stopping the cloud"):
            cloud.down()
    else:
        progress.say("nothing runs")
    if arguments.wipe:
        clouds.wipe(layout)
        progress.say(f"removed {layout.root}")


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    arguments = _arguments()
    progress = Progress(arguments.began)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        {"up": up, "resume": resume, "down": down}[arguments.command](arguments, progress)
    except (StackError, story.Broken, NotReached, ApiError, httpx.HTTPError) as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
