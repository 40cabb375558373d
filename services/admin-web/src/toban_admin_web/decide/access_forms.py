"""What the pages of accounts, groups, rules and secrets read from forms, and from the rules and reasons of coordinators."""

from __future__ import annotations

import re
from collections.abc import Iterable

from toban_admin_web.decide.api_models import AccessRule, User
from toban_admin_web.decide.flow_forms import pairs_of

SCOPES = ("", "system", "account", "user")
"""Of a rule; "" is any."""
FROM_PROVIDER = "OpenID provider"
"""Who made a rule that each sign-in with the provider replaces."""
_DECIDES = re.compile(r"rule ([0-9]{1,18}) of ")


def deciding_rule(reason: str) -> int | None:
    """The number of the rule that the reason of a verdict names; None when no rule decided."""
    found = _DECIDES.match(reason)
    return int(found[1]) if found else None


def whole_grants(user: str, rules: Iterable[AccessRule]) -> list[AccessRule]:
    """The rules that give the user a role for everything and that a person made: what another role replaces."""
    given = (one for one in rules if one.user == user and one.effect == "allow" and is_whole(one))
    return [one for one in given if one.created_by != FROM_PROVIDER]


def is_whole(rule: AccessRule) -> bool:
    """Whether a rule is for everything."""
    chosen = rule.selector
    return chosen is None or not (chosen.job or chosen.labels or chosen.scope or chosen.scope_id)


def numbers(rules: Iterable[AccessRule]) -> str:
    """Their numbers as text, to see whether others changed them."""
    return " ".join(str(one.id) for one in rules)


def words(text: str) -> list[str]:
    """The words between commas and white space, each once."""
    return list(dict.fromkeys(text.replace(",", " ").split()))


def parse_labels(text: str) -> dict[str, str]:
    """`team=ops, tier=1`, also in lines, as labels. Raises ValueError."""
    return pairs_of("\n".join(words(text)))


def offered(user: User) -> tuple[str, ...]:
    """The actions on an account as it is, in the order of their buttons."""
    state = "disable" if user.enabled else "enable"
    return ("password", "link", *(("unlink",) if user.identities else ()), "end-sessions", state, "delete")
