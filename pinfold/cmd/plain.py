"""Runs a service in the foreground, unsupervised."""
import os, signal, sys, threading
from pinfold.model import errors


def run(name, build):
    stop = threading.Event()
    try:
        conf, services = build(sys.argv[1:], lambda why: (print(why, file=sys.stderr), os._exit(1)))
        for service in services:
            service.start()
    except errors.ConfigurationError as error:
        print(f"{name}: {error.message}", file=sys.stderr)
        return 1
    if conf.pid_file:
        open(conf.pid_file, "w").write(str(os.getpid()))
    signal.signal(signal.SIGTERM, lambda *a: stop.set())
    stop.wait()
    for service in reversed(services):
        service.stop()
    return 0
