# SPDX-License-Identifier: GPL-2.0-only
"""A program: prints the source locations of addresses in a file with DWARF, as JSON, by the library drgn.

It is a process of its own, as a damaged file may crash the library. Its only argument is a JSON file with ``file``,
``arch`` (drgn's name), ``sections`` (addresses by name, of a module; else empty) and ``addresses``.
"""

import json
import sys

import drgn

with open(sys.argv[1]) as request:  # noqa: PTH123
    wanted = json.load(request)
addresses = wanted["addresses"]
program = drgn.Program(drgn.Platform(drgn.Architecture[wanted["arch"]]))
module = (
    program.relocatable_module("code", 0, create=True)
    if wanted["sections"]
    else program.extra_module("code", 0, create=True)
)
for name, address in wanted["sections"].items():
    module.section_addresses[name] = address
module.try_file(wanted["file"], force=True)
if module.debug_file_status is not drgn.ModuleFileStatus.HAVE:
    sys.exit("the file has no debug information")
# Only now: with a range drgn takes its begin for the place that the file was loaded to.
module.address_ranges = [(min(addresses), max(addresses) + 1)]
found = []
for address in addresses:
    try:
        found.append([[one.name() or "", one.filename, one.line] for one in program.source_location(address)])
    except LookupError:
        found.append([])
json.dump(found, sys.stdout)
