-- SPDX-License-Identifier: GPL-2.0-only
-- The layout of a lab's result store, version 1. Run once, on an empty file; lab_2.sql adds to it.
BEGIN IMMEDIATE;

CREATE TABLE runs (
    number     INTEGER PRIMARY KEY,      -- the order in which runs began
    id         TEXT NOT NULL UNIQUE,
    experiment TEXT NOT NULL,
    directory  TEXT NOT NULL,
    started    TEXT NOT NULL,            -- ISO 8601, UTC
    finished   TEXT,
    status     TEXT NOT NULL CHECK (status IN ('running', 'complete', 'interrupted')),
    digest     TEXT NOT NULL,            -- of the resolved experiment
    provenance TEXT NOT NULL             -- JSON
) STRICT;

-- Provenance is large and rarely wanted: listings do without it.
CREATE VIEW run_entries AS
    SELECT number, id, experiment, directory, started, finished, status, digest FROM runs;

CREATE TABLE cells (
    run      TEXT NOT NULL REFERENCES runs (id),
    position INTEGER NOT NULL,           -- in the plan
    id       TEXT NOT NULL,
    status   TEXT NOT NULL CHECK (status IN ('planned', 'ok', 'failed', 'skipped', 'unsupported')),
    record   TEXT,                       -- JSON: the cell's record without its samples
    PRIMARY KEY (run, id),
    UNIQUE (run, position),
    CHECK ((status = 'planned') = (record IS NULL))
) STRICT;

CREATE TABLE samples (
    run      TEXT NOT NULL,
    cell     TEXT NOT NULL,
    position INTEGER NOT NULL,
    value    REAL NOT NULL,
    PRIMARY KEY (run, cell, position),
    FOREIGN KEY (run, cell) REFERENCES cells (run, id)
) STRICT, WITHOUT ROWID;

PRAGMA application_id = 0x4b50524f;      -- "KPRO"
PRAGMA user_version = 1;

COMMIT;
