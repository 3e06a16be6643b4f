# SPDX-License-Identifier: GPL-2.0-only
"""A program: prints the source locations of addresses in a file with DWARF, as JSON, by the library drgn.

It is a process of its own, as a damaged file may crash the library. Its only argument is a JSON file with ``file``,
``arch`` (drgn's name), ``sections`` (addresses by name, of a module; else empty) and ``addresses``.
"""

import json
import sys

import drgn

with open(sys.argv[1]) as file:  # noqa: PTH123
    request = json.load(file)
addresses = request["addresses"]
program = drgn.Program(drgn.Platform(drgn.Architecture[request["arch"]]))
module = (
    program.relocatable_module("code", 0, create=True)
    if request["sections"]
    else program.extra_module("code", 0, create=True)
)
for name, address in request["sections"].items():
    module.section_addresses[name] = address
module.try_file(request["file"], force=True)
if module.debug_file_status is not drgn.ModuleFileStatus.HAVE:
    sys.exit("the file has no debug information")
# Only now: with a range drgn takes its begin for the place that the file was loaded to.
module.address_ranges = [(min(addresses), max(addresses) + 1)]
locations = []
for address in addresses:
    try:
        locations.append(
            [[location.name() or "", location.filename, location.line] for location in program.source_location(address)]
        )
    except LookupError:
        locations.append([])
json.dump(locations, sys.stdout)
