"""What a page or a command shows of a leader, and the refusals of an action on another leader than the one seen."""

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_fencing.operator import SeenLeader, no_leader, require_epoch, stale_epoch


def test_a_leader_is_shown_with_its_epoch() -> None:
    leader = SeenLeader(epoch=7, worker_id=3, address="host-a:7000")
    assert (str(leader), leader.present) == ("host-a:7000 (worker 3, epoch 7)", True)
    assert leader.describe(since="1h ago") == "host-a:7000 (worker 3, epoch 7, since 1h ago)"


def test_without_a_leader_the_last_epoch_is_shown() -> None:
    leader = SeenLeader(epoch=7)
    assert (str(leader), leader.present) == ("none (last epoch 7)", False)


def test_a_request_names_the_epoch_that_was_seen() -> None:
    assert require_epoch(7) == 7
    with pytest.raises(TobanError, match="toban cluster status") as caught:
        require_epoch(0)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_refusals_name_the_present_epoch() -> None:
    assert no_leader(7).detail == {"epoch": 7}
    refused = stale_epoch(seen=6, present=7)
    assert (refused.code, refused.detail) == (ErrorCode.CONFLICT, {"epoch": 7})
    assert "epoch 7 leads, not 6" in refused.message
