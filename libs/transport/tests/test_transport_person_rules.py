"""The role that each method needs, written by hand a second time: the table must agree with docs/security.md, not with itself."""

import pytest

from toban_domain.access import MINIMUM
from toban_domain.errors import TobanError
from toban_transport.authz import ADMIN_CLI, ADMIN_WEB, METHOD_RULES
from toban_transport.person_rules import PERSON_RULES, WITHOUT_PERSON, check_person_rules

# Reviewed: service.method → role, and whether the rules of single jobs decide ("jobs", "list") or not.
EXPECTED = {
    "viewer list": "JobReader.ListJobs JobReader.ListSchedules JobReader.ListRuns JobReader.ListTriggers",
    "viewer jobs": "JobReader.GetJob JobReader.GetSchedule JobReader.GetRun JobReader.WatchRun JobReader.ExplainRun JobReader.NextSlots "
    "JobReader.ListFires",
    "viewer any": "JobReader.ListExecutors JobReader.GetCluster Operations.ListSettings",
    "viewer cluster": "JobReader.ListEvents Operations.ListLimits Operations.GetLimit",
    "operator jobs": "JobControl.StartRuns JobControl.RerunRun JobControl.CancelRun JobControl.DeclareRunLost "
    "JobControl.NoteRun",
    "operator each": "JobControl.CancelRuns JobControl.RerunRuns",
    "operator cluster": "JobControl.EmitEvent Operations.SignalLimit",
    "editor jobs": "JobControl.Apply JobControl.DeleteJob JobControl.PauseSchedule JobControl.ResumeSchedule JobControl.DeleteSchedule "
    "JobControl.DeleteTrigger",
    "editor any": "Operations.ListSecrets",
    "admin cluster": "Operations.SetSecret Operations.RemoveSecret Operations.RotateSecrets "
    "Operations.UpdateSetting Operations.ListAudit Operations.DetachExecutor Operations.DrainExecutor Operations.UndrainExecutor "
    "Operations.DemoteLeader Operations.AdoptEpoch Operations.SetLimit Operations.SetBreaker Operations.Diagnose "
    "Accounts.CreateBootstrapLink Accounts.ListUsers "
    "Accounts.AddUser Accounts.UpdateUser Accounts.DeleteUser Accounts.EndSessions Accounts.ListGroups Accounts.UpdateGroup Accounts.ListRules "
    "Accounts.AddRule Accounts.RemoveRule Accounts.May Accounts.CreateToken Accounts.ListTokens Accounts.RevokeToken",
}
NOBODY = {"Accounts.Authenticate", "Accounts.SignOut", "Accounts.GetAccountsState", "Accounts.RedeemBootstrapLink"}
# Log-archivers know no accounts yet.
OF_LOGS = ("toban_proto.v1.LogReader", "toban_proto.v1.LogArchive")


def short(method: str) -> str:
    return method.removeprefix("/toban_proto.v1.").replace("/", ".")


def test_every_method_needs_the_reviewed_role() -> None:
    found: dict[str, set[str]] = {}
    for method, rule in PERSON_RULES.items():
        found.setdefault(f"{MINIMUM[rule.action]} {rule.about}", set()).add(short(method))
    assert found == {key: set(methods.split()) for key, methods in EXPECTED.items()}
    assert {short(method) for method in WITHOUT_PERSON} == NOBODY


def test_every_method_for_people_has_a_row() -> None:
    people = {method for method, callers in METHOD_RULES.items() if callers & {ADMIN_WEB, ADMIN_CLI}}
    decided = {*PERSON_RULES, *WITHOUT_PERSON}
    rest = {method for method in people - decided if not method.startswith("/grpc.health")}
    assert all(method.removeprefix("/").startswith(OF_LOGS) for method in rest), rest
    assert decided <= people
    check_person_rules(decided | {"/grpc.health.v1.Health/Check", "/toban_proto.v1.Peer/Ping"})


def test_a_method_without_a_row_stops_the_start() -> None:
    with pytest.raises(TobanError, match=r"no rule in PERSON_RULES for /a\.B/C; add one"):
        check_person_rules({"/a.B/C"}, {"/a.B/C": frozenset({ADMIN_CLI})})
