"""What the conductor's options say, as one frozen record."""

from __future__ import annotations

import msgspec
from oslo_config import cfg

from pinfold.conf import operations
from pinfold.model.work import Times


class Settings(msgspec.Struct, frozen=True):
    """``shelved_offload_time`` in seconds: 0 at once, more: by the sweeper, negative: never. ``max_attempts``: on
    how many hosts a spawn is tried. ``sweep_interval`` in seconds. ``resize_confirm_window``: after how many
    seconds a move is confirmed by itself, 0 for never."""

    host: str
    times: Times = Times()
    shelved_offload_time: int = 0
    max_attempts: int = 3
    sweep_interval: float = 1.0
    heartbeat: float = 3.0
    default_zone: str = "nova"
    allow_resize_to_same_host: bool = False
    resize_confirm_window: int = 0


def settings_from(conf: cfg.ConfigOpts) -> Settings:
    """The options as a record."""
    group = conf.conductor
    return Settings(
        host=conf.host,
        times=operations.times(conf),
        shelved_offload_time=conf.shelved_offload_time,
        max_attempts=group.max_attempts,
        sweep_interval=group.sweep_interval,
        heartbeat=group.heartbeat,
        default_zone=conf.default_availability_zone,
        allow_resize_to_same_host=conf.allow_resize_to_same_host,
        resize_confirm_window=conf.resize_confirm_window,
    )
