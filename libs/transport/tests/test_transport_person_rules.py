"""The role that each method needs, written by hand a second time: the table must agree with docs/security.md, not with itself."""

import pytest

from toban_domain.access import MINIMUM
from toban_domain.errors import TobanError
from toban_transport.authz import ADMIN_CLI, ADMIN_WEB, METHOD_RULES
from toban_transport.person_rules import BY_CERTIFICATE, BY_TICKET, PERSON_RULES, WITHOUT_PERSON, check_person_rules

# Reviewed: service.method → role, and whether the rules of single jobs decide ("jobs", "list") or not.
EXPECTED = {
    "viewer list": "JobReader.ListJobs JobReader.ListSchedules JobReader.ListRuns JobReader.ListTriggers JobReader.GetOverview",
    "viewer jobs": "JobReader.GetJob JobReader.ListJobVersions JobReader.GetJobDays JobReader.GetSchedule JobReader.GetRun JobReader.WatchRun "
    "JobReader.ExplainRun JobReader.NextSlots "
    "JobReader.ListFires",
    "viewer each": "JobReader.GetReadTicket",
    # Any role, also none.
    "viewer own": "Accounts.ChangeOwnPassword Accounts.ListOwnSessions Accounts.EndOwnSession Accounts.CreateOwnToken Accounts.ListOwnTokens "
    "Accounts.RevokeOwnToken",
    "viewer any": "JobReader.ListExecutors JobReader.GetCluster Operations.ListSettings Operations.ListExecutorGroups",
    "viewer cluster": "JobReader.ListEvents Operations.ListLimits Operations.GetLimit Webhooks.ListWebhooks Webhooks.ListDeliveries "
    "Hooks.ListHooks",
    "operator jobs": "JobControl.StartRuns JobControl.RerunRun JobControl.CancelRun JobControl.DeclareRunLost "
    "JobControl.NoteRun",
    "operator each": "JobControl.CancelRuns JobControl.RerunRuns",
    "operator cluster": "JobControl.EmitEvent Operations.SignalLimit",
    "operator work": "ExternalWork.Claim ExternalWork.Heartbeat ExternalWork.UpdateProgress ExternalWork.Complete ExternalWork.Fail "
    "ExternalWork.AcknowledgeCancel",
    "editor jobs": "JobControl.Apply JobControl.DeleteJob JobControl.DisableJob JobControl.EnableJob "
    "JobControl.PauseSchedule JobControl.ResumeSchedule JobControl.DeleteSchedule "
    "JobControl.DeleteTrigger",
    "editor any": "Operations.ListSecrets",
    "admin cluster": "Operations.SetSecret Operations.RemoveSecret Operations.RotateSecrets "
    "Operations.UpdateSetting Operations.ListAudit Operations.DetachExecutor Operations.DrainExecutor Operations.UndrainExecutor "
    "Operations.DemoteLeader Operations.AdoptEpoch Operations.SetLimit Operations.SetBreaker Operations.Diagnose "
    "Operations.VerifyAudit Operations.SetExecutorGroup Operations.RemoveExecutorGroup "
    "Accounts.CreateBootstrapLink Accounts.ListUsers "
    "Accounts.AddUser Accounts.UpdateUser Accounts.DeleteUser Accounts.EndSessions Accounts.ListGroups Accounts.UpdateGroup Accounts.ListRules "
    "Accounts.AddRule Accounts.RemoveRule Accounts.May Accounts.CreateToken Accounts.ListTokens Accounts.RevokeToken "
    "Accounts.LinkUser Accounts.UnlinkUser "
    "Webhooks.SetWebhook Webhooks.RemoveWebhook Webhooks.TestWebhook Webhooks.Redeliver "
    "Hooks.SetHook Hooks.RemoveHook Hooks.TestHook",
}
NO_PERSON_NEEDED = {
    *("Accounts.Authenticate", "Accounts.SignOut", "Accounts.GetAccountsState", "Accounts.RedeemBootstrapLink"),
    *("Accounts.StartOidcSignIn", "Accounts.SignInWithOidc"),
    *("WebhookOutbox.ClaimDeliveries", "WebhookOutbox.ConfirmDelivery"),
    "HookReceiver.ReceiveHook",
}
# Log-archivers know no accounts.
TICKETED = {"LogReader.Read", "LogReader.Describe", "LogReader.Search"}
CERTIFIED = {"LogArchive.Status", "LogArchive.RunArchive", "LogArchive.Verify", "LogArchive.Diagnose"}


def short(method: str) -> str:
    return method.removeprefix("/toban_proto.v1.").replace("/", ".")


def test_every_method_needs_the_reviewed_role() -> None:
    found: dict[str, set[str]] = {}
    for method, rule in PERSON_RULES.items():
        found.setdefault(f"{MINIMUM[rule.action]} {rule.about}", set()).add(short(method))
    assert found == {key: set(methods.split()) for key, methods in EXPECTED.items()}
    assert {short(method) for method in WITHOUT_PERSON} == NO_PERSON_NEEDED
    assert {short(method) for method in BY_TICKET} == TICKETED
    assert {short(method) for method in BY_CERTIFICATE} == CERTIFIED
    assert all(METHOD_RULES[method] == {ADMIN_CLI} for method in BY_CERTIFICATE)


def test_every_method_for_people_has_a_row() -> None:
    people = {method for method, callers in METHOD_RULES.items() if callers & {ADMIN_WEB, ADMIN_CLI}}
    decided = {*PERSON_RULES, *WITHOUT_PERSON, *BY_TICKET, *BY_CERTIFICATE}
    assert {method for method in people - decided if not method.startswith("/grpc.health")} == set()
    assert decided <= people
    check_person_rules(decided | {"/grpc.health.v1.Health/Check", "/toban_proto.v1.Peer/Ping"})


def test_a_method_without_a_row_stops_the_start() -> None:
    with pytest.raises(TobanError, match=r"no rule in PERSON_RULES for /a\.B/C; add one"):
        check_person_rules({"/a.B/C"}, {"/a.B/C": frozenset({ADMIN_CLI})})
