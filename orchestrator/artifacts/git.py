# SPDX-License-Identifier: GPL-2.0-only
"""git called for a user's repository, which is only read, and clones that share its objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Self

from orchestrator.errors import LabError
from orchestrator.process import Finished, run

_LIMIT = 1800.0  # seconds; a kernel's checkout takes tens of seconds on a slow disk
_CONFIG = "lab.config"
"""In a clone's .git: includes the configuration of the user's repository."""
_SETTINGS = Path(__file__).with_name("git-tree.conf")


def git(folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> Finished:
    """Run git in a folder, with the user's configuration and without prompts and hooks; ``settings`` are variables."""
    environment = {**_of_another_repository(), "GIT_TERMINAL_PROMPT": "0", **(settings or {})}
    quiet = ("-c", "advice.detachedHead=false", "-c", "core.hooksPath=/dev/null", "-c", "i18n.logOutputEncoding=UTF-8")
    return run(["git", "-C", str(folder), *quiet, *arguments], time_limit=_LIMIT, environment=environment)


@lru_cache(maxsize=1)
def _of_another_repository() -> Mapping[str, None]:
    """Unset variables that name another repository, such as a hook's GIT_DIR, but not the user's configuration."""
    listed = run(["git", "rev-parse", "--local-env-vars"], time_limit=_LIMIT).stdout.split()
    return {name: None for name in listed if not name.startswith("GIT_CONFIG_")}


def git_in_clone(clone: Path, *arguments: str, offline: bool, settings: Mapping[str, str] | None = None) -> Finished:
    """Run git in a clone, not in its submodules; ``offline`` it fetches from folders of this host alone."""
    # The clone is the lab's own, whatever owner the file system reports.
    words = ["-c", f"safe.directory={clone}", "-c", "submodule.recurse=false"]
    # Offline, a partial clone may still fetch objects from a local folder; git-lfs knows no server.
    words += ["-c", "lfs.url=offline:"] if offline else []
    allowed = {"GIT_ALLOW_PROTOCOL": "file"} if offline else {}
    return git(clone, *words, *arguments, settings={**allowed, **(settings or {})})


@dataclass(frozen=True)
class SharedRepository:
    """What a clone shares with a user's repository: its objects, shallow boundary and configuration."""

    objects: Path
    shallow: Path
    config: Path
    object_format: str

    @classmethod
    def of(cls, folder: Path) -> Self:
        """That of a work tree's folder, or of a ``.git`` folder whose work tree may be gone. Raises LabError."""
        # The folder below .git/modules names the work tree of a submodule, which the user's commit may not have.
        place = () if (folder / ".git").exists() else ("--work-tree=.",)

        def asked(*question: str) -> str:
            answer = git(folder, *place, "rev-parse", "--path-format=absolute", *question)
            return answer.or_raise(LabError, f"git refuses {folder}").stdout.removesuffix("\n")

        objects, shallow, config = (Path(asked("--git-path", name)) for name in ("objects", "shallow", "config"))
        return cls(objects, shallow, config, asked("--show-object-format"))

    def clone(self, folder: Path) -> None:
        """Make ``folder``, new or without a repository, a clone without files. Raises LabError."""
        repository = folder / ".git"
        rmtree(repository, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        made = git(folder, "init", "--quiet", "--template=", f"--object-format={self.object_format}", str(folder))
        made.or_raise(LabError, f"the repository of {self.objects.parent} cannot be cloned")
        with (repository / "config").open("a") as config:
            config.write(f"[include]\n\tpath = {_CONFIG}\n")
        self.share(folder)

    def share(self, folder: Path) -> None:
        """Point the clone at the repository's objects of now: it may have moved, been replaced, or become complete."""
        repository = folder / ".git"
        (repository / "objects/info").mkdir(exist_ok=True)
        (repository / "objects/info/alternates").write_text(f"{self.objects}\n")
        quoted = str(self.config).replace("\\", "\\\\").replace('"', '\\"')
        (repository / _CONFIG).write_text(_SETTINGS.read_text().format(quoted))
        (repository / "shallow").unlink(missing_ok=True)
        if self.shallow.is_file():
            copyfile(self.shallow, repository / "shallow")


def is_clone(folder: Path) -> bool:
    """Whether a folder is a finished clone of the lab's."""
    return (folder / ".git" / _CONFIG).is_file()


def unlock(clone: Path) -> None:
    """Remove the lock files of a killed git (Ctrl-C), which would block every later one."""
    repository = clone / ".git"
    for lock in [*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock")]:
        lock.unlink(missing_ok=True)
