-- fragment: confirming
-- Whether executor `e` holds a run for which it has just asked about continuation.
EXISTS (SELECT 1 FROM scheduler.runs_live c
         WHERE c.assigned_incarnation = e.incarnation AND c.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
           AND c.continuation_state = 'CONFIRMING' AND c.continuation_check_deadline_at > now())

-- name: register
-- A new incarnation of an executor: always a row of its own, never an overwrite. No row when the incarnation is there already.
-- The lease is the setting's, unless what is stored is not allowed.
INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash, secret_hash, state, lease_ms,
                                 slots, free_slots, labels, version, executor_group, proves_log_key, isolation,
                                 isolation_details)
SELECT %(incarnation)s::uuid, nextval('scheduler.worker_id_seq'), %(instance)s::text, %(node_id)s::text, %(boot_id)s::text, %(pid)s::integer,
       %(grpc_host)s::text, %(grpc_port)s::integer, %(key_hash)s::bytea, %(secret_hash)s::bytea,
       CASE WHEN EXISTS (SELECT 1 FROM scheduler.executor_drains WHERE instance = %(instance)s::text) THEN 'draining' ELSE 'on' END,
       coalesce((SELECT CASE WHEN jsonb_typeof(value) = 'number' AND value::numeric BETWEEN %(least)s::numeric AND %(most)s::numeric
                             THEN value::numeric * 1000 END
                   FROM scheduler.settings WHERE name = 'executor_lease_seconds'),
                %(lease_ms)s::integer)::integer,
       %(slots)s::integer, 0, %(labels)s::jsonb, %(version)s::text, %(group)s::text, %(proves_log_key)s::boolean,
       %(isolation)s::text, %(isolation_details)s::text[]
ON CONFLICT (incarnation) DO NOTHING
RETURNING worker_id, lease_ms, (SELECT l.epoch FROM scheduler.leader l WHERE l.id = 1) AS leader_epoch,
          (SELECT l.cluster_id::text FROM scheduler.leader l WHERE l.id = 1) AS cluster_id, extract(epoch FROM now())::bigint AS granted_at;

-- name: of_instance
-- The incarnations of an instance in order of registration; it is named, or by one of them.
SELECT e.incarnation::text AS incarnation, e.secret_hash, e.state = 'off' AS off
  FROM scheduler.executors e
 WHERE e.instance = coalesce(%(instance)s::text, (SELECT me.instance FROM scheduler.executors me WHERE me.incarnation = %(incarnation)s::uuid))
 ORDER BY e.worker_id;

-- name: attest
-- Earlier incarnations of the same instance on the same node that are known to be dead: the machine has booted since, or the successor that
-- holds the state directory has reaped their guards. Only those that it may speak for. With the others of another boot, which are not silent.
WITH attested AS (
UPDATE scheduler.executors e
   SET attested_reason = CASE WHEN e.boot_id <> %(boot_id)s::text THEN 'the node has booted since'
                              ELSE 'its successor found its processes gone' END
 WHERE e.instance = %(instance)s::text AND e.node_id = %(node_id)s::text AND e.incarnation <> %(incarnation)s::uuid
   AND e.state <> 'off' AND e.attested_reason = '' AND e.incarnation = ANY (%(proven)s::uuid[]) AND {{ended_before}}
   AND {{pods_ended}}
RETURNING 1
)
SELECT (SELECT count(*) FROM attested) AS attested,
       coalesce((SELECT array_agg(e.incarnation::text) FROM scheduler.executors e
                  WHERE e.instance = %(instance)s::text AND e.node_id = %(node_id)s::text AND e.incarnation <> %(incarnation)s::uuid
                    AND e.state <> 'off' AND e.attested_reason = '' AND e.boot_id <> %(boot_id)s::text AND e.incarnation = ANY (%(proven)s::uuid[])
                    AND NOT {{ended_before}}),
                '{}') AS not_silent;

-- name: attest_own
-- An incarnation, or its witness, says that it has ended: no process of its jobs is left and it starts nothing any more. A copy
-- of it proves nothing.
UPDATE scheduler.executors SET attested_reason = %(reason)s::text
 WHERE incarnation = %(incarnation)s::uuid AND state <> 'off' AND attested_reason = ''
   AND (nonce = %(nonce)s::bigint OR %(nonce)s::bigint = ANY (nonces));

-- name: facts
-- What never changes of an incarnation, nulls when it is not registered, and what a coordinator signs of the database that says so.
SELECT e.key_hash, e.secret_hash, e.executor_group, e.proves_log_key, l.epoch, l.cluster_id::text AS cluster_id, extract(epoch FROM now())::bigint AS server_time
  FROM scheduler.leader l LEFT JOIN scheduler.executors e ON e.incarnation = %(incarnation)s::uuid
 WHERE l.id = 1;

-- name: grant_all
-- One heartbeat of each incarnation: grant_seq -> grant_seq + 1 while the state grants, the echo keeps up and no copy has the lease; rows are
-- locked in id order.
-- on -> draining here, never the way back: after a wait for a row this statement still sees the drains as they were before the wait.
WITH asked AS (
    SELECT * FROM unnest(%(incarnations)s::uuid[], %(echoes)s::bigint[], %(free)s::integer[],
                         %(loads)s::double precision[], %(draining)s::boolean[], %(skews)s::double precision[], %(disks)s::bigint[],
                         %(certificates)s::timestamptz[], %(nonces)s::bigint[],
                         %(quarantined_outcomes)s::integer[], %(quarantined_chunks)s::integer[], %(unreachable)s::boolean[])
        AS t (incarnation, echo, free_slots, load, draining, skew, disk, certificate, nonce, quarantined_outcomes, quarantined_chunks,
              unreachable)
), locked AS (
    SELECT e.incarnation, {{may_grant}} AS may, a.nonce = e.nonce OR a.nonce = ANY (e.nonces) AS known
      FROM scheduler.executors e JOIN asked a USING (incarnation) ORDER BY e.incarnation FOR NO KEY UPDATE OF e
)
UPDATE scheduler.executors e
   SET grant_seq = e.grant_seq + locked.may::integer,
       granted_at = CASE WHEN locked.may THEN now() ELSE e.granted_at END,
       nonce = CASE WHEN locked.may THEN a.nonce ELSE e.nonce END,
       nonces = CASE WHEN locked.may THEN {{next_nonces}} ELSE e.nonces END,
       echo_seq = {{echoed}},
       free_slots = a.free_slots, load = a.load, last_heartbeat_at = now(),
       clock_skew_seconds = coalesce(a.skew, e.clock_skew_seconds), disk_free_bytes = coalesce(a.disk, e.disk_free_bytes),
       certificate_not_after = coalesce(a.certificate, e.certificate_not_after),
       quarantined_outcomes = a.quarantined_outcomes, quarantined_chunks = a.quarantined_chunks, unreachable = a.unreachable,
       state = CASE WHEN e.state NOT IN ('on', 'draining') THEN e.state
                    WHEN a.draining OR EXISTS (SELECT 1 FROM scheduler.executor_drains d WHERE d.instance = e.instance) THEN 'draining'
                    ELSE e.state END
  FROM asked a JOIN locked USING (incarnation)
 WHERE e.incarnation = a.incarnation AND e.state <> 'off'
RETURNING e.incarnation::text AS incarnation, e.worker_id, e.node_id, e.pid, e.grpc_host, e.grpc_port, e.state, e.detach_mode, e.grant_seq,
          locked.may AS granted, CASE WHEN locked.may THEN e.nonces[1] ELSE 0 END AS nonce, locked.known AS nonce_known, e.slots,
          {{signed_with_grant}},
          e.state = 'draining' AND NOT a.draining
          AND NOT EXISTS (SELECT 1 FROM scheduler.executor_drains d WHERE d.instance = e.instance) AS may_resume,
          EXISTS (SELECT 1 FROM scheduler.executor_orders o WHERE o.incarnation = e.incarnation AND o.done_at IS NULL)
          -- The latest first: an open snapshot keeps the entries of ended runs, and they come before those of live ones.
          OR (SELECT 1 FROM scheduler.runs_live r
               WHERE r.assigned_incarnation = e.incarnation AND r.state IN ('ASSIGNED', 'RUNNING', 'CANCEL_REQUESTED')
               ORDER BY r.dispatched_at DESC LIMIT 1) IS NOT NULL AS has_updates;

-- name: adopt_nonce
-- Only while the cluster is not settled: PostgreSQL may lack the grant that this signed nonce came with, a later one than it holds.
UPDATE scheduler.executors e SET nonce = %(nonce)s::bigint, nonces = '{}', grant_seq = %(grant_seq)s::bigint
  FROM scheduler.leader l
 WHERE e.incarnation = %(incarnation)s::uuid AND e.state IN ('on', 'draining', 'detached') AND e.grant_seq < %(grant_seq)s::bigint
   AND l.id = 1 AND NOT scheduler.is_settled(l);

-- name: lock
-- These rows, in id order. What comes after it in the transaction sees the drains as they are while the rows are held.
SELECT 1 FROM scheduler.executors WHERE incarnation = ANY (%(incarnations)s::uuid[]) ORDER BY incarnation FOR NO KEY UPDATE;

-- name: lock_ordered
-- As `lock`, for the executors of these orders.
SELECT 1 FROM scheduler.executors
 WHERE incarnation IN (SELECT o.incarnation FROM scheduler.executor_orders o WHERE o.id = ANY (%(orders)s::bigint[]))
 ORDER BY incarnation FOR NO KEY UPDATE;

-- name: resume
-- draining -> on, when no drain is kept (any more). Only after `lock`: a drain locks these rows too, after it was written down.
UPDATE scheduler.executors e SET state = 'on'
 WHERE e.incarnation = ANY (%(incarnations)s::uuid[]) AND e.state = 'draining'
   AND NOT EXISTS (SELECT 1 FROM scheduler.executor_drains d WHERE d.instance = e.instance)
RETURNING e.incarnation::text AS incarnation;

-- name: observe
-- Every incarnation that is not off, with the cluster that this statement ran on.
SELECT scheduler.current_system_id() || '/' || scheduler.current_timeline() AS cluster, e.incarnation::text AS incarnation, e.worker_id,
       e.instance, e.node_id, e.state, e.grant_seq, e.lease_ms, e.attested_reason, e.grpc_host, e.grpc_port,
       extract(epoch FROM e.last_heartbeat_at)::double precision AS last_heartbeat
  FROM scheduler.executors e WHERE e.state <> 'off';

-- name: detach
-- on | draining -> detached. For silence alone not while one of its runs is CONFIRMING: its executor has just asked for it. Only after `lock`.
UPDATE scheduler.executors e SET state = 'detached', detach_mode = %(mode)s::text, detached_at = now()
 WHERE e.incarnation = ANY (%(incarnations)s::uuid[]) AND e.state IN ('on', 'draining') AND (%(mode)s::text <> '' OR NOT {{confirming}})
RETURNING e.incarnation::text AS incarnation, e.worker_id;

-- name: rejoin
-- detached -> on, or draining when a drain is kept: no operator asked for the detach, and its heartbeats are back. Only after `lock`, as `resume`.
UPDATE scheduler.executors e
   SET state = CASE WHEN EXISTS (SELECT 1 FROM scheduler.executor_drains d WHERE d.instance = e.instance) THEN 'draining' ELSE 'on' END,
       detached_at = NULL
 WHERE incarnation = ANY (%(incarnations)s::uuid[]) AND state = 'detached' AND detach_mode = ''
RETURNING incarnation::text AS incarnation, worker_id;

-- name: told_orders
-- Open orders that the answer to a heartbeat had: one has come since they were written.
SELECT o.id
  FROM scheduler.executor_orders o JOIN scheduler.executors e ON e.incarnation = o.incarnation
 WHERE o.done_at IS NULL AND e.state IN ('on', 'draining', 'detached') AND e.last_heartbeat_at > o.created_at;

-- name: cut_silent
-- on | draining | detached -> cut: one of these orders to it is still open, and none of its runs is CONFIRMING. Only after `lock_ordered`.
UPDATE scheduler.executors e SET state = 'cut'
 WHERE e.state IN ('on', 'draining', 'detached') AND NOT {{confirming}}
   AND EXISTS (SELECT 1 FROM scheduler.executor_orders o
                WHERE o.incarnation = e.incarnation AND o.done_at IS NULL AND o.id = ANY (%(orders)s::bigint[]))
RETURNING e.incarnation::text AS incarnation, e.worker_id;

-- name: note_detach
-- Who detached an executor through Redis, in the audit log.
INSERT INTO scheduler.admin_action_log (actor, action, target, reason) VALUES ('redis', 'detach', %(target)s::text, %(reason)s::text);
