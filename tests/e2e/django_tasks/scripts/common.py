"""What the scripts share."""

from toban.django import conf


def ended(result):
    """The result when its run has ended."""
    job = result.task.get_backend().jobs[result.task.queue_name]
    if "-" in result.id:
        number = int(result.id.partition("-")[2])
        # The leader looks for events twice a second.
        while not (found := conf.client().call("GET", "/events", cursor=number + 1, limit=1)["events"][0])["run_ids"]:
            assert not found["outcome"], found
        run_id = found["run_ids"][0]
    else:
        [run] = conf.client().runs.list(job=job, idempotency_key=result.id, ahead=True)
        run_id = run.id
    conf.client().runs.wait(run_id, timeout=60)
    result.refresh()
    assert result.is_finished
    return result
