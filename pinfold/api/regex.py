"""Regular expressions from clients: only what every database understands, and none that takes for ever."""

from __future__ import annotations

import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from typing import Any

from pinfold.api import query as queries

_LONGEST = 255
_MOST_REPEATS = 3
_MOST_TIMES = 255
_SPECIAL = re.compile(r"[\\^$*+?{}\[\]|().]")
_LEAVES = {codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.AT, codes.IN}
# A set in a set, or an operator on sets, is something else to each database; so is a repeat without a lower bound.
_DIFFERENT = re.compile(r"\[\^?\]?[^\]]*(\[|--|&&|~~|\|\|)|\{,")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_ESCAPES = re.compile(r"\\(?![dDwWsS]|[^A-Za-z0-9])")


def is_plain(text: str) -> bool:
    """Whether it means itself."""
    return _SPECIAL.search(text) is None


def checked(name: str, pattern: str) -> str:
    """``pattern``, once it is sure that it is one. Raises InvalidRequest naming the parameter.

    Groups, classes, alternatives and repeats are allowed, but no repeat inside a repeat, no look-around, no
    reference back, and nothing that one database reads otherwise than another.
    """
    wanted = "a regular expression without nested repeats, look-around or references back"
    bare = _ESCAPED.sub("", pattern)
    if len(pattern) > _LONGEST or _ESCAPES.search(pattern) or "(?" in pattern or _DIFFERENT.search(bare):
        raise queries.bad(name, pattern, wanted)
    try:
        parsed = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError):
        raise queries.bad(name, pattern, wanted) from None
    if not _is_simple(parsed, inside=False) or _repeats(parsed) > _MOST_REPEATS:
        raise queries.bad(name, pattern, wanted)
    return pattern


def _is_simple(parsed: Any, *, inside: bool) -> bool:
    for code, argument in parsed:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = argument
            few = most is codes.MAXREPEAT or most <= _MOST_TIMES
            if inside or least > _MOST_TIMES or not few or not _is_simple(inner, inside=True):
                return False
        elif code is codes.SUBPATTERN:
            if not _is_simple(argument[-1], inside=inside):
                return False
        elif code is codes.BRANCH:
            if not all(_is_simple(branch, inside=inside) for branch in argument[1]):
                return False
        elif code not in _LEAVES:
            return False
    return True


def _repeats(parsed: Any) -> int:
    """How many repeats have no upper bound, or a large one."""
    count = 0
    for code, argument in parsed:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            count += argument[1] is codes.MAXREPEAT or argument[1] > 1
        elif code is codes.SUBPATTERN:
            count += _repeats(argument[-1])
        elif code is codes.BRANCH:
            count += sum(_repeats(branch) for branch in argument[1])
    return count
