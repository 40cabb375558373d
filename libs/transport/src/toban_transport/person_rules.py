"""Which action of a person each method is, beside its callers (authz.py). Pure.

A server with a method for admin-web or admin-cli whose rule has neither an action nor another authority refuses to start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from toban_domain.errors import ErrorCode, TobanError
from toban_transport.authz import ADMIN_CLI, ADMIN_WEB, METHOD_RULES, Rules
from toban_transport.rules import RULES, Authority, PersonRule

CREDENTIAL = "toban-credential"
"""Metadata of a call for a person: the secret of a session, or an API token."""
ADDRESS = "toban-address"
"""Metadata beside it: where the person is, as far as the caller knows."""


PERSON_RULES: Mapping[str, PersonRule] = {
    method: rule.person for method, rule in RULES.items() if rule.person is not None
}
"""Full method name → action. With a certificate of admin-cli or external-worker and without a person, those of its METHOD_RULES are allowed."""

WITHOUT_PERSON, BY_TICKET, BY_CERTIFICATE = (
    frozenset(method for method, rule in RULES.items() if rule.authority is authority)
    for authority in (Authority.REQUEST, Authority.TICKET, Authority.CERTIFICATE)
)
"""Methods for which something else than a person's rules decides (MethodRule.Authority in options.proto)."""


def check_person_rules(registered: Collection[str], rules: Rules = METHOD_RULES) -> None:
    """Raises CONFIG_INVALID when people may reach a registered method whose rule has no right for them."""
    decided = {*PERSON_RULES, *WITHOUT_PERSON, *BY_TICKET, *BY_CERTIFICATE}
    for_people = [method for method in registered if rules.get(method, frozenset()) & {ADMIN_WEB, ADMIN_CLI}]
    missing = sorted(method for method in for_people if method not in decided and "/grpc.health." not in method)
    if missing:
        raise TobanError(
            ErrorCode.CONFIG_INVALID, f"no action in the rule of {', '.join(missing)}; add it to its proto"
        )
