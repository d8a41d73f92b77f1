"""Checks that other users cannot change a library that an environment variable names. The rule is
the runtime's rule for plugins (docs/trust.md); the runtime itself must be checked before it is
loaded."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def refusal(path: Path) -> str | None:
    """The reason why other users could change or replace this file; None if they cannot.

    path: absolute, links followed. The file and all folders above must belong to root or to this
    user, and no other user may write to them. A sticky folder passes if the folder below it is
    private.
    """
    parent_of_private = False
    for place in (path, *path.parents):
        try:
            about = place.lstat()
        except OSError as error:
            return f"{place} cannot be examined: {error.strerror}"
        if about.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to user {about.st_uid}, expected root or user {os.geteuid()}"
        is_folder = stat.S_ISDIR(about.st_mode)
        by_everybody = bool(about.st_mode & stat.S_IWOTH)
        by_group = bool(about.st_mode & stat.S_IWGRP) and not _is_trusted(about.st_gid)
        is_sticky = is_folder and bool(about.st_mode & stat.S_ISVTX)
        if (by_everybody or by_group) and not (is_sticky and parent_of_private):
            who = "everybody" if by_everybody else f"group {about.st_gid}"
            return f"{who} may write to {place}"
        parent_of_private = is_folder
    return None


def _is_trusted(group: int) -> bool:
    """True for root's group, and for the private group that many systems make for each user."""
    if group == 0:
        return True
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    mine = user.pw_gid == group and entry.gr_name == user.pw_name
    return mine and all(member == user.pw_name for member in entry.gr_mem)
