"""Runs openstack commands: a line of JSON with the words in, one with the outcome out.

The client is imported once, and each command runs in a fork of that: a new process for each would spend most of its
time on importing, and one process for all would remember what it has discovered. Pauses between two polls of the
client are cut short.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
import time
from typing import Any

PAUSE = 0.1


def main() -> None:
    from openstackclient import shell

    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(float(seconds), PAUSE))
    for line in iter(sys.stdin.readline, ""):
        sys.stdout.write(_forked(shell, json.loads(line)) + "\n")
        sys.stdout.flush()


def _forked(shell: Any, command: str) -> str:
    """The outcome as JSON."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        with open(theirs, "w") as answer, open(os.devnull) as nothing:
            sys.stdin = nothing  # nobody answers a question
            json.dump(_run(shell, command), answer)
        os._exit(0)
    os.close(theirs)
    with open(ours) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def _run(shell: Any, command: str) -> dict[str, Any]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = shell.main(shlex.split(command)[1:])
        except SystemExit as end:
            code = end.code
    return {"code": int(code or 0), "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    main()
