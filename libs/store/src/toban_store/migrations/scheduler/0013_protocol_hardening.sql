-- migrate:up
-- Copies of an incarnation lose its lease (docs/fencing.md 3.5): the nonce that its heartbeats presented last (0 = none yet), and those that were
-- granted for it, newest first.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.executors
    ADD COLUMN nonce bigint NOT NULL DEFAULT 0,
    ADD COLUMN nonces bigint[] NOT NULL DEFAULT '{}' CHECK (cardinality(nonces) <= 4);

-- A slot whose run was skipped when it was to be dispatched has the reason as its outcome, and keeps its run. What the old rule allowed, the new one
-- does: nothing to validate.
ALTER TABLE scheduler.fire_ledger
    DROP CONSTRAINT fire_ledger_check1,
    ADD CONSTRAINT fire_ledger_fired CHECK (outcome <> 'fired' OR run_id IS NOT NULL) NOT VALID;

-- What executors say of themselves, for `toban doctor`: outcomes and log chunks in quarantine, and whether processes refuse their signals.
ALTER TABLE scheduler.executors
    ADD COLUMN quarantined_outcomes integer NOT NULL DEFAULT 0,
    ADD COLUMN quarantined_chunks integer NOT NULL DEFAULT 0,
    ADD COLUMN unreachable boolean NOT NULL DEFAULT false;

-- migrate:down
ALTER TABLE scheduler.executors DROP COLUMN quarantined_outcomes, DROP COLUMN quarantined_chunks, DROP COLUMN unreachable;
UPDATE scheduler.fire_ledger SET outcome = 'fired' WHERE run_id IS NOT NULL AND outcome <> 'fired';
ALTER TABLE scheduler.fire_ledger
    DROP CONSTRAINT fire_ledger_fired,
    ADD CONSTRAINT fire_ledger_check1 CHECK ((outcome = 'fired') = (run_id IS NOT NULL));
ALTER TABLE scheduler.executors DROP COLUMN nonce, DROP COLUMN nonces;
