"""Every language has every text, with the same placeholders, and every key in use has a text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from toban_admin_web.decide.day_map import TONES
from toban_admin_web.decide.flow_forms import HOOK_ACTIONS, WEBHOOK_ACTIONS
from toban_admin_web.decide.languages import LANGUAGES, NAMES
from toban_admin_web.decide.limit_state import ACTIONS as LIMIT_ACTIONS
from toban_admin_web.decide.limit_state import LEVELS, WHYS
from toban_admin_web.decide.navigation import GROUPS
from toban_admin_web.decide.run_actions import DISPATCH_NAMES
from toban_admin_web.decide.run_actions import ENDPOINTS as RUN_ACTIONS
from toban_admin_web.decide.schedule_form import KINDS as SCHEDULE_KINDS
from toban_admin_web.decide.schedule_form import UNITS
from toban_admin_web.decide.spread import REASONS as LEFT_ALONE
from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_admin_web.decide.timeline import BY
from toban_admin_web.decide.timeline_cells import TONES as RUN_TONES
from toban_admin_web.decide.translations import placeholders
from toban_admin_web.server.theme import CHOICES
from toban_admin_web.views.actions import DONE
from toban_admin_web.views.cluster.cluster_actions import MODES
from toban_admin_web.views.definitions.job_actions import DELETE_OPTIONS
from toban_admin_web.views.people.groups import DONE as GROUP_DONE
from toban_admin_web.views.people.rules import KINDS
from toban_admin_web.views.people.secrets import USERS as SECRET_USERS
from toban_admin_web.views.people.users import DONE as USER_DONE
from toban_domain.access import Action, Effect, Role
from toban_domain.outcome import Reason
from toban_domain.run import RunState

WEB = Path(__file__).resolve().parents[3] / "web"
CATALOGUES = {
    language: json.loads((WEB / "locales" / f"{language}.json").read_text(encoding="utf-8")) for language in LANGUAGES
}
ENGLISH = CATALOGUES["en"]
PROBLEMS = (
    "unreachable",
    "not_found",
    "no_page",
    "method",
    "bad_request",
    "host",
    "busy",
    "rejected",
    "internal",
    "forbidden",
    "signed_out",
    "origin",
    "form",
)

FORM_PROBLEMS = ("missing", "not_integer", "not_number", "not_boolean", "not_choice", "not_json", "not_object")
REFUSED = (
    "no_reason",
    "long_reason",
    "invalid_payload",
    "invalid_time",
    "invalid_priority",
    "no_epoch",
    "not_disabled",
    "invalid_number",
    "not_a_number",
    "no_version",
    "wrong_manifest",
    "read_change",
    "long_change",
    "load_changed",
    "load_nothing",
    "unknown_role",
    "rules_changed",
    "passwords_differ",
    "no_password",
    "no_group",
    "no_user",
    "no_owner",
    "wrong_labels",
    "secret_exists",
    "no_jobs",
    "two_values",
    "event_payload",
    "name_taken",
    "changed_meanwhile",
    "wrong_events",
)

# Fields of the form for schedules whose names, and those of their choices, are keys.
FORM_CHOICES = (
    *(f"kind.{one}" for one in SCHEDULE_KINDS),
    *(f"unit.{one}" for one in UNITS),
    *("catch_up", "catch_up.all", "catch_up.one", "catch_up.skip"),
    *("gap", "gap.shift", "gap.run_after", "gap.skip"),
    *("fold", "fold.first", "fold.second", "fold.both"),
    *("on_failure", "on_failure.keep", "on_failure.remove"),
)


def used_keys() -> set[str]:
    """The keys in templates and in the code behind them."""
    names: set[str] = set()
    for template in (WEB / "templates").glob("*.html"):
        text = template.read_text(encoding="utf-8")
        names |= set(re.findall(r"\bt\('([a-z_.]+)'[,)]", text)) | set(re.findall(r"'(nav\.[a-z]+)'", text))
    names |= {f"state.{state}" for state in RunState} | {f"group.{group}" for group in STATE_GROUPS}
    names |= {f"reason.{reason}" for reason in Reason if reason}
    names |= {f"problem.{name}.{part}" for name in PROBLEMS for part in ("title", "text", "remedy")}
    names |= {f"rule.every.{unit}" for unit in "smhd"} | {
        f"age.{way}.{unit}" for way in ("ago", "in") for unit in "smhd"
    }
    names |= set(DISPATCH_NAMES)
    names |= {f"weekday.{day}" for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")}
    names |= {f"month.{number}" for number in range(1, 13)}
    names |= {f"archive.{verb}{part}" for verb in ("run", "verify") for part in ("", ".text", ".do")}
    names |= {f"archive.state.{where}" for where in ("both", "database", "archive", "expired")}
    names |= {f"schedule.form.{one}" for one in FORM_CHOICES} | {"schedule.form.to_yaml", "schedule.form.to_form"}
    names |= {
        f"rule.{one}" for one in ("times", "minute", "between", "on_days", "of_month", "last_day", "in_months", "join")
    }
    names |= {f"done.{done}" for done in DONE} | {f"action.{problem}" for problem in REFUSED}
    names |= {f"form.{problem}" for problem in FORM_PROBLEMS}
    for action in RUN_ACTIONS:
        own = ("", ".text", ".do") if action != "rerun" else ("",)
        names |= {f"run_action.{action}{part}" for part in own}
    names |= {f"bulk.{verb}{part}" for verb in ("cancel", "rerun") for part in ("", ".do", ".states", ".progress")}
    names |= {f"schedule.{verb}{part}" for verb in ("pause", "resume") for part in ("", ".text", ".do")}
    names |= {
        f"executor_action.{verb}{part}" for verb in ("drain", "undrain", "detach") for part in ("", ".text", ".do")
    }
    names |= {f"limit.{verb}{part}" for verb in LIMIT_ACTIONS for part in ("", ".text", ".do")}
    for kind, verbs in (("webhook_action", WEBHOOK_ACTIONS), ("hook_action", HOOK_ACTIONS)):
        names |= {f"{kind}.{verb}{part}" for verb in verbs for part in ("", ".text", ".do")}
    names |= {f"limit.why.{why}" for why in WHYS} | {f"limit.level.{level}" for level in LEVELS}
    names |= {f"executor_action.detach.{mode}" for mode in MODES}
    names |= {f"job.delete.{option}" for option in DELETE_OPTIONS}
    names |= {f"{kind}.{one}" for kind, values in CHOICES.items() for one in ("title", *values)} | {
        f"timeline.by.{one}" for one in BY
    }
    names |= {f"timeline.{kind}.{tone}" for kind in ("tone", "legend") for tone in RUN_TONES}
    names |= {f"timeline.{link}" for link in ("earlier", "closer", "wider", "later")}
    names |= {f"job.{verb}{part}" for verb in ("disable", "enable") for part in ("", ".text", ".do")}
    names |= {f"job.day.{tone}" for tone in TONES}
    names |= {f"load.left.{reason}" for reason in LEFT_ALONE} | {"load.next_before", "load.next_after"}
    names |= {f"{kind}.{verb}" for kind in ("job", "schedule") for verb in ("edit", "new")}
    names |= {f"bulk.{stage}" for stage in ("running", "stopped", "finished")}
    names |= {f"access.user.{verb.replace('-', '_')}{part}" for verb in USER_DONE for part in ("", ".text", ".do")}
    names |= {f"access.group.{verb}{part}" for verb in GROUP_DONE for part in ("", ".text", ".do")}
    names |= {f"access.role_text.{role}" for role in ("none", *Role)} | {f"access.{kind}" for kind in KINDS}
    names |= {f"access.effect_text.{effect}" for effect in Effect} | {f"access_effect.{effect}" for effect in Effect}
    names |= {f"access_action.{action}" for action in Action} | {f"secret.for.{users}" for users in SECRET_USERS}
    for group in GROUPS:
        names |= {group.title} | {link.text for link in group.links}
    names |= {f"archive.state.{where}" for where in ("database", "both", "archive", "expired")}
    names |= {f"leader_pill.{status}" for status in ("none", "unresponsive", "away", "unknown")}
    names |= {"action.invite_uses", "action.invite_hours"}
    return names | {"rule.weekly", "rule.hourly", "rule.daily", "rule.cron", "rule.and", "age.now"}


def test_each_language_has_a_name() -> None:
    assert (
        set(NAMES)
        == set(LANGUAGES)
        == {path.stem for path in (WEB / "locales").glob("*.json") if path.stem != "services"}
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_every_text_with_the_same_placeholders(language: str) -> None:
    catalogue = CATALOGUES[language]
    assert set(catalogue) == set(ENGLISH)
    assert {name: placeholders(text) for name, text in catalogue.items()} == {
        name: placeholders(text) for name, text in ENGLISH.items()
    }
    assert {name for name, text in catalogue.items() if "%" in text} == {
        name for name, text in ENGLISH.items() if "%" in text
    }
    assert [name for name, text in catalogue.items() if not text.strip()] == []


def test_every_key_in_use_has_a_text() -> None:
    assert sorted(used_keys() - set(ENGLISH)) == []


def test_no_text_is_unused() -> None:
    # Their keys are made of values that the cluster reports.
    labels = {"leader", "role", "coordinator_status", "health", "check", "executor_state", "enabled", "schedule_status"}
    labels |= {"access_role", "outcome", "origin", "event", "value", "reason", "state", "duration", "step", "why"}
    labels |= {"alert", "severity", "waiting", "breaker", "signal", "audit_problem", "event_outcome"}
    labels |= {"webhook_form", "webhook_status", "delivery_state", "invite_status", "life"}
    unused = {name for name in set(ENGLISH) - used_keys() if name.partition(".")[0] not in labels}
    assert sorted(unused) == []
