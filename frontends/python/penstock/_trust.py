"""Who may change a library that a variable names: the rule that the runtime has for plugins
(docs/trust.md), for the one that has to be loaded before it can be asked."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def refusal(path: Path) -> str | None:
    """Why others could change this file, or put another in its place; None where they cannot.

    path: absolute, links followed. It and all folders above belong to root or to this user, and
    nobody else may write to them; a sticky folder passes where what lies in it is private.
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
    """Root's, or the user's own private one, as many systems make it for each user."""
    if group == 0:
        return True
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    mine = user.pw_gid == group and entry.gr_name == user.pw_name
    return mine and all(member == user.pw_name for member in entry.gr_mem)
