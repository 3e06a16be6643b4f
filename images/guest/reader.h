// SPDX-License-Identifier: GPL-2.0-only
// The process that reads what the calls' probes write: stopped while calls are timed, it reads between batches.
#ifndef READER_H
#define READER_H

// GROUP is that of the process which leads it and reads. It is stopped. What so many calls write has ROOM.
void set_reader(long group, long room);
int has_reader(void);
// How many calls may be made at once.
long room_of_reader(void);
// Before so many calls are made: if they have no room, let it read all that there is, and stop it again. Returns whether
// it has read. Ends the program where it does not come to rest, or is gone.
int let_read(long calls);

#endif
