-- migrate:up
-- Where an action came from, and a hash chain over the audit (docs/audit.md). Callers insert; rows are chained by `chain_audit` and removed by
-- `forget_audit` alone, which run with the owner's rights.
SET LOCAL lock_timeout = '10s';
ALTER TABLE scheduler.admin_action_log
    ADD COLUMN address text NOT NULL DEFAULT '',
    ADD COLUMN service text NOT NULL DEFAULT '',
    ADD COLUMN seq bigint,
    ADD COLUMN hash bytea,
    ADD CONSTRAINT admin_action_log_chained CHECK ((seq IS NULL) = (hash IS NULL));
CREATE INDEX admin_action_log_unchained ON scheduler.admin_action_log (id) WHERE seq IS NULL;
CREATE UNIQUE INDEX admin_action_log_seq ON scheduler.admin_action_log (seq) WHERE seq IS NOT NULL;

-- The row before the oldest one that is kept, and the newest one of the chain.
CREATE TABLE scheduler.audit_chain (
    mark text PRIMARY KEY CHECK (mark IN ('anchor', 'head')),
    seq bigint NOT NULL,
    hash bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO scheduler.audit_chain (mark, seq, hash) SELECT m, 0, decode(repeat('00', 32), 'hex') FROM unnest(ARRAY['anchor', 'head']) AS m;

-- Chains at most `most` rows in the order of their ids. The text of a row is each value with its length in bytes before it, as in
-- toban_domain.audit_chain; its hash is that of the previous hash and this text.
CREATE FUNCTION scheduler.chain_audit(most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    last scheduler.audit_chain;
    entry record;
    ids bigint[] := '{}';
    hashes bytea[] := '{}';
BEGIN
    SELECT c.* INTO STRICT last FROM scheduler.audit_chain c WHERE c.mark = 'head' FOR UPDATE;
    FOR entry IN
        SELECT a.id, ARRAY[a.id::text, (extract(epoch FROM a.at) * 1000000)::bigint::text, a.actor, a.action, a.target, COALESCE(a.before::text, ''),
                           COALESCE(a.after::text, ''), a.reason, a.address, a.service] AS fields
          FROM scheduler.admin_action_log a WHERE a.seq IS NULL ORDER BY a.id LIMIT most
    LOOP
        last.seq := last.seq + 1;
        last.hash := sha256(last.hash || convert_to((SELECT string_agg(octet_length(convert_to(f, 'UTF8')) || ':' || f, ',' ORDER BY place)
                                                       FROM unnest(last.seq::text || entry.fields) WITH ORDINALITY AS i(f, place)), 'UTF8'));
        ids := ids || entry.id;
        hashes := hashes || last.hash;
    END LOOP;
    IF cardinality(ids) > 0 THEN
        UPDATE scheduler.admin_action_log a SET seq = last.seq - cardinality(ids) + n.place, hash = n.hash
          FROM unnest(ids, hashes) WITH ORDINALITY AS n(id, hash, place) WHERE a.id = n.id;
        UPDATE scheduler.audit_chain c SET seq = last.seq, hash = last.hash, at = now() WHERE c.mark = 'head';
    END IF;
    RETURN cardinality(ids);
END $$;

-- Removes at most `most` of the oldest rows that are older than `days`, and moves the anchor; how many. Younger rows stay.
CREATE FUNCTION scheduler.forget_audit(days integer, most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    start bigint;
    last record;
    removed integer;
BEGIN
    IF days IS NULL OR days < 30 THEN
        RAISE EXCEPTION 'the audit is kept for 30 days at least, not for %', days USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT c.seq INTO STRICT start FROM scheduler.audit_chain c WHERE c.mark = 'anchor' FOR UPDATE;
    SELECT o.seq, o.hash INTO last
      FROM (SELECT a.seq, a.hash, bool_and(a.at < now() - make_interval(days => days)) OVER (ORDER BY a.seq) AS old
              FROM (SELECT x.seq, x.hash, x.at FROM scheduler.admin_action_log x WHERE x.seq > start ORDER BY x.seq LIMIT most) a) o
     WHERE o.old ORDER BY o.seq DESC LIMIT 1;
    IF last IS NULL THEN
        RETURN 0;
    END IF;
    UPDATE scheduler.audit_chain c SET seq = last.seq, hash = last.hash, at = now() WHERE c.mark = 'anchor';
    DELETE FROM scheduler.admin_action_log a WHERE a.seq <= last.seq;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

CREATE FUNCTION scheduler.keep_audit() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.seq <= (SELECT c.seq FROM scheduler.audit_chain c WHERE c.mark = 'anchor') THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of the audit are never changed or removed (row %)', OLD.id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER admin_action_log_kept BEFORE DELETE ON scheduler.admin_action_log FOR EACH ROW EXECUTE FUNCTION scheduler.keep_audit();
CREATE TRIGGER admin_action_log_final BEFORE UPDATE ON scheduler.admin_action_log FOR EACH ROW
    WHEN (OLD.seq IS NOT NULL OR (OLD.id, OLD.at, OLD.actor, OLD.action, OLD.target, OLD.before, OLD.after, OLD.reason, OLD.address, OLD.service)
          IS DISTINCT FROM (NEW.id, NEW.at, NEW.actor, NEW.action, NEW.target, NEW.before, NEW.after, NEW.reason, NEW.address, NEW.service))
    EXECUTE FUNCTION scheduler.keep_audit();
REVOKE ALL ON FUNCTION scheduler.chain_audit(integer), scheduler.forget_audit(integer, integer), scheduler.keep_audit() FROM PUBLIC;

-- migrate:down
DROP TRIGGER admin_action_log_final ON scheduler.admin_action_log;
DROP TRIGGER admin_action_log_kept ON scheduler.admin_action_log;
DROP FUNCTION scheduler.chain_audit(integer), scheduler.forget_audit(integer, integer), scheduler.keep_audit();
DROP TABLE scheduler.audit_chain;
ALTER TABLE scheduler.admin_action_log
    DROP CONSTRAINT admin_action_log_chained, DROP COLUMN address, DROP COLUMN service, DROP COLUMN seq, DROP COLUMN hash;
