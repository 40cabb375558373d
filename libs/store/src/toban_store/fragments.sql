-- SQL that the files of several folders share.

-- fragment: fence
-- The fence of a leader's transaction or statement: its first lock, and no row when another epoch leads or this is not the term's cluster.
-- FOR SHARE, not KEY SHARE: only that one makes the update of a take-over wait. The cluster is read live, in the same statement.
SELECT 1 AS held
  FROM scheduler.leader
 WHERE id = 1 AND epoch = %(fence_epoch)s::bigint AND scheduler.current_timeline() = %(fence_timeline)s::bigint
   AND scheduler.current_system_id() = %(fence_system_id)s::text
   FOR SHARE
