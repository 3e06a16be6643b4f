-- SPDX-License-Identifier: GPL-2.0-only
-- Added in version 2: names of runs that others are compared with. One statement, run in a transaction.
CREATE TABLE baselines (
    name TEXT PRIMARY KEY,
    run  TEXT NOT NULL REFERENCES runs (id),
    since TEXT NOT NULL                  -- ISO 8601, UTC: when the name was given to this run
) STRICT, WITHOUT ROWID;
