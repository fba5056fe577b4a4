"""What a process may give up: namespaces, files and privileges. The kernel's own calls."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)

NAMESPACES = {"network": 0x40000000, "processes": 0x20000000, "ipc": 0x08000000}
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
NOSUID, NODEV, BIND, REC, PRIVATE = 2, 4, 4096, 16384, 1 << 18  # flags of mount(2)
PDEATHSIG, SUBREAPER, NO_NEW_PRIVS = 1, 36, 38  # options of prctl(2)
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, READ_ONLY = 442, -100, 0x8000, 1
CAPABILITY_VERSION = 0x20080522

# What an interpreter may need, where it exists; its own folders are added.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SKELETON = "size=1m,nr_inodes=4096,mode=0755"


def call(name: str, *arguments: Any) -> None:
    """Calls the C library.

    Args:
      name: of its function.
      *arguments: as ctypes takes them.

    Raises:
      OSError: it says so.
    """
    if getattr(LIBC, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def prctl(option: int, value: int) -> None:
    """Sets an option of this process.

    Args:
      option: what to set.
      value: to what.
    """
    call("prctl", option, *map(ctypes.c_ulong, (value, 0, 0, 0)))


def isolate(folder: str, size: int, user: int, group: int) -> tuple[list[str], list[str]]:
    """Makes private what this machine lets it.

    Args:
      folder: an empty one, in which this process and its children see other files than the rest.
      size: bytes that a program may keep in files.
      user: who runs it.
      group: likewise.

    Returns:
      What is private now, and what was refused, with the reason.
    """
    steps = {} if os.geteuid() == 0 else {"user": own_user}
    steps |= {name: lambda flag=flag: call("unshare", flag) for name, flag in NAMESPACES.items()}
    steps["files"] = lambda: own_files(folder, f"size={size},uid={user},gid={group}")
    done, refused = [] if "user" in steps else ["user"], []
    for name, step in steps.items():
        try:
            step()
            done.append(name)
        except OSError as error:
            refused.append(f"{name}: {error.strerror}")
    if "ipc" in done:  # segments of shared memory would count towards no limit
        with contextlib.suppress(OSError), open("/proc/sys/kernel/shmall", "w") as most:
            most.write("0")
    return done, refused


def own_user() -> None:
    """A namespace of users, where somebody who is not root may make the others."""
    user, group = os.geteuid(), os.getegid()
    call("unshare", NEW_USER)
    entries = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in entries.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def own_files(folder: str, options: str) -> None:
    """Builds a tree that holds an interpreter to read, and one folder, `/tmp`, to write.

    Args:
      folder: where; it must be empty.
      options: size and owner of the part that can be written.
    """
    call("unshare", NEW_MOUNTS)
    _mount("none", "/", None, REC | PRIVATE)
    _mount("none", folder, "tmpfs", NOSUID | NODEV, SKELETON)
    covered: list[str] = []
    for path in sorted(sources()):
        if any(f"{path}/".startswith(f"{other}/") for other in covered):
            continue
        covered.append(path)
        os.makedirs(os.path.dirname(folder + path), exist_ok=True)
        if os.path.islink(path) and path in SYSTEM:
            os.symlink(os.readlink(path), folder + path)
        else:
            _expose(path, folder + path)
    os.mkdir(f"{folder}/tmp")
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NOSUID)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    where = (AT_FDCWD, folder.encode(), AT_RECURSIVE)
    call("syscall", MOUNT_SETATTR, *where, ctypes.byref(attributes), size)
    _mount("none", f"{folder}/tmp", "tmpfs", NOSUID | NODEV, f"nr_inodes=1024,mode=0700,{options}")


def sources() -> set[str]:
    """Files and folders that an interpreter like this one reads."""
    found = {*SYSTEM, *DEVICES, *sys.path, sys.base_prefix, sys.base_exec_prefix}
    with open("/proc/self/maps") as lines:
        mapped = {line.split(maxsplit=5)[5].strip() for line in lines if "/" in line}
    found |= {os.path.dirname(name) for name in mapped if ".so" in os.path.basename(name)}
    return {path for path in found - {"/"} if path.startswith("/") and os.path.exists(path)}


def renounce(user: int, group: int) -> None:
    """Becomes somebody without privileges, for good.

    Args:
      user: whom; if this is not root, who it is already.
      group: likewise.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    prctl(NO_NEW_PRIVS, 1)


def _mount(source: str, place: str, kind: str | None, flags: int, options: str = "") -> None:
    kind_ = None if kind is None else kind.encode()
    flags_, options_ = ctypes.c_ulong(flags), options.encode() or None
    call("mount", source.encode(), place.encode(), kind_, flags_, options_)


def _expose(path: str, place: str) -> None:
    """Makes a file or folder appear at another place too."""
    if os.path.isdir(path):
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT))
    _mount(path, place, None, BIND | REC)
