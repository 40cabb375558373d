-- migrate:up
-- Epochs that executors present count only with a coordinator's signature (docs/fencing.md 3.2).

-- cluster_id is part of what is signed, so that a signature of another installation proves nothing here. A database that was restored within
-- its server has the same system identifier and timeline, and another oid; null = taken for the present one, as before this release.
ALTER TABLE scheduler.leader ADD COLUMN cluster_id uuid NOT NULL DEFAULT gen_random_uuid(), ADD COLUMN settled_database oid;

CREATE FUNCTION scheduler.current_database_oid() RETURNS oid
    LANGUAGE sql STABLE SET search_path = pg_catalog
    AS $$ SELECT oid FROM pg_database WHERE datname = current_database() $$;

-- Whether PostgreSQL is the one that a leader has seen stand for a whole lease.
CREATE FUNCTION scheduler.is_settled(l scheduler.leader) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog
    AS $$ SELECT l.settled_system_id = scheduler.current_system_id() AND l.settled_timeline = scheduler.current_timeline()
             AND coalesce(l.settled_database, scheduler.current_database_oid()) = scheduler.current_database_oid() $$;
REVOKE EXECUTE ON FUNCTION scheduler.current_database_oid(), scheduler.is_settled(scheduler.leader) FROM PUBLIC;

-- What executors presented before there were signatures counts once more, up to the generation of the leader: later epochs come from the
-- leader row alone. Incarnations that never had a grant prove nothing.
WITH known AS (
    SELECT max(e.epoch_max) & ~((1::bigint << 27) - 1) AS epoch
      FROM scheduler.executors e, scheduler.leader l
     WHERE e.grant_seq > 0 AND e.epoch_max >> 51 <= l.epoch >> 51
), raised AS (
    UPDATE scheduler.leader l SET epoch = known.epoch FROM known WHERE l.epoch < known.epoch RETURNING l.epoch
)
UPDATE scheduler.leader_beat b SET epoch = raised.epoch FROM raised;

-- Executors that were refused because they could not prove their maximum: for `toban doctor`, which names the remedy. At most 100 rows.
CREATE TABLE scheduler.epoch_claims (
    instance text PRIMARY KEY,
    node_id text NOT NULL,
    epoch bigint NOT NULL CHECK (epoch >= 0),
    reason text NOT NULL,
    last_at timestamptz NOT NULL DEFAULT now()
);

-- migrate:down
DROP TABLE scheduler.epoch_claims;
DROP FUNCTION scheduler.is_settled(scheduler.leader);
DROP FUNCTION scheduler.current_database_oid();
ALTER TABLE scheduler.leader DROP COLUMN cluster_id, DROP COLUMN settled_database;
