# SPDX-License-Identifier: GPL-2.0-only
"""What all parts of a run's side of a fleet work with."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.fleet.link import Link
from orchestrator.fleet.own_guests import OwnGuests
from orchestrator.fleet.roster import Roster
from orchestrator.run.progress_listener import ProgressListener


@dataclass(frozen=True)
class Side:
    """The connection, this machine's cache, who is told what goes on, who is in the fleet, and guests here."""

    link: Link
    context: BuildContext
    listener: ProgressListener
    roster: Roster = field(default_factory=Roster)
    guests: OwnGuests = field(default_factory=OwnGuests)
