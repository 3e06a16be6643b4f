# SPDX-License-Identifier: GPL-2.0-only
"""Files outside of a module's folder that its build reads, or would read if it were built in place.

The lab builds a copy of the folder. A path that leads out of it (``../core/Module.symvers``) leads nowhere there; an
absolute one leads to the user's own file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.artifacts.diagnostics import error_lines
from orchestrator.catalog.probes import is_module_folder
from orchestrator.files import sha256_of

_RECORD = "outside.json"
_MISSING = re.compile(r"(?:<build>/)?([^\s:]+):\d+(?::\d+)?: fatal error: '?([^\s':]+)'?(?:: No such| file not found)")
_NO_SYMBOL = re.compile(r'(?:"[^"]+" \[\S+\]|symbol \'[^\']+\') undefined|Module\.symvers')
_UNDEFINED = re.compile(r'"([^"]+)" \[\S+\] undefined|symbol \'([^\']+)\' undefined')
_UPWARDS = re.compile(r"(?:\$[({][^)}\s]*[)}]/*)*(\.\.(?:/[^\s\"']*)?)")
"""A path that leads upwards, behind variables that all stand for a makefile's folder: ``-I$(src)/../include``."""
_OBJECT = re.compile(r"^\s*obj-\S+\s*[:+]?=\s*(?:\S+\s+)*?([\w-]+)\.o\b", re.MULTILINE)
_READ = re.compile(r"^  (/\S+)", re.MULTILINE)
"""A file in the dependencies that kbuild writes into an object's ``.NAME.cmd``."""


def outside_hint(kept: str, folder: Path, sources: Mapping[str, bytes]) -> str:
    """What to do about an error whose cause is that a file outside of the folder is not in its copy; else empty."""
    line = next(iter(error_lines(kept)), "")
    missing = _MISSING.match(line)
    if missing is not None:
        at = (folder / missing[1]).parent
        places = [at / missing[2], *(place / missing[2] for place in _named_upwards(folder, sources))]
    elif _NO_SYMBOL.search(line):
        places = [place for place in _named_upwards(folder, sources) if place.name == "Module.symvers"]
    else:
        places = []
    outside = (Path(os.path.normpath(place.absolute())) for place in places)
    path = next((place for place in outside if not place.is_relative_to(folder.absolute()) and _is_there(place)), None)
    if path is None:
        return ""
    here = folder.absolute()
    named = [Path(os.path.normpath(place.absolute())).parent for place in _named_upwards(folder, sources)]
    above = Path(os.path.commonpath([here, path.parent]))
    folders = [place for place in dict.fromkeys([path.parent, *named, here]) if place.is_relative_to(above)]
    parts = [f"{place.relative_to(above)}/" for place in folders if place != above and is_module_folder(place)]
    makefiles = b"\n".join(sources.get(name, b"") for name in ("Kbuild", "Makefile")).decode(errors="replace")
    objects = _OBJECT.findall(makefiles)
    what = f"the lab builds a copy of {here.name} alone, without {os.path.relpath(path, here)}"
    shown = _as_argument(above)
    name = shlex.quote(f"{shown}:{objects[0] if objects else 'NAME'}")
    if is_module_folder(above):
        return f"{what}: name the folder above, {name}"
    return f"{what}: write {shown}Kbuild with obj-m := {' '.join(parts)}, and name {name}"


def _as_argument(folder: Path) -> str:
    path = os.path.relpath(folder)
    return f"{path if path.startswith('.') else f'./{path}'}/"


def unlisted_hint(kept: str, sources: Mapping[str, bytes]) -> str:
    """What to do about an undefined symbol that another source of the folder exports; else empty."""
    missing = _UNDEFINED.search(next(iter(error_lines(kept)), ""))
    symbol = "" if missing is None else missing[1] or missing[2]
    exported = re.compile(rf"EXPORT_SYMBOL\w*\s*\(\s*{re.escape(symbol)}\s*[,)]".encode())
    file = next((name for name, text in sources.items() if symbol and exported.search(text)), None)
    if file is None:
        return ""
    return (
        f"{file} exports {symbol}, and no module is made of it: have it in an obj-m, or its folder, as obj-m := FOLDER/"
    )


def _is_there(place: Path) -> bool:
    return place.is_file() or (place.name == "Module.symvers" and place.parent.is_dir())


def _named_upwards(folder: Path, sources: Mapping[str, bytes]) -> Iterator[Path]:
    """The paths out of their own folder that makefiles name."""
    for name, text in sources.items():
        if Path(name).name in ("Kbuild", "Makefile") or name.endswith(".mk"):
            for path in _UPWARDS.findall(text.decode(errors="replace")):
                yield folder / Path(name).parent / path


def keep_outside(target: Path, scratch: Path, known: Sequence[Path]) -> None:
    """Record the files that a build in ``scratch`` has read elsewhere than in the ``known`` folders."""
    inside = [scratch.resolve(), *(place.resolve() for place in known)]
    read = {
        file
        for record in scratch.rglob(".*.cmd")
        for name in _READ.findall(record.read_text(errors="replace"))
        if (file := Path(os.path.realpath(name))).is_file() and not any(map(file.is_relative_to, inside))
    }
    (target / _RECORD).write_text(json.dumps({str(file): sha256_of(file) for file in sorted(read)}))


def changed_outside(built: Path) -> Mapping[str, str]:
    """The digests of the files that a build has read elsewhere, if one has changed; else nothing."""
    record = built / _RECORD
    before: dict[str, str] = json.loads(record.read_text()) if record.is_file() else {}
    now = {name: sha256_of(Path(name)) if Path(name).is_file() else "" for name in before}
    return now if now != before else {}
