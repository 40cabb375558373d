"""Protobuf messages to the domain's objects and back, for what more than one service sends."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, AttemptState, ErrorLine, Outcome, OutcomeKind, Reason, StepResult
from toban_domain.progress import Progress
from toban_domain.usage import UsageSample
from toban_proto.v1 import common_pb2

M = TypeVar("M", bound=Message)

MAX_PROGRESS_CHARS = 4096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OUTCOME_KINDS = {kind: common_pb2.OutcomeKind.Value(f"OUTCOME_KIND_{kind.name}") for kind in OutcomeKind}


def timestamp_to_pb(at: datetime | None) -> Timestamp | None:
    """An aware time as a Timestamp, to the microsecond; None stays None (a message field that is left out)."""
    if at is None:
        return None
    if at.tzinfo is None:
        raise ValueError("a time without a zone cannot be sent")
    # Timestamp.FromDatetime takes three times as long, and each run has a dozen times on its way.
    since = at - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def fill(kind: type[M], source: Mapping[str, Any] | object, **others: Any) -> M:
    """A message with a value for each of its fields: in `others`, else in `source`, a mapping or an object, under the name of the field.

    Times become timestamps; None leaves a field unset. Raises KeyError or AttributeError for a field that neither has, so that a new
    field or a renamed column is noticed, and ValueError for a name that is no field.
    """
    names, times = _names(kind.DESCRIPTOR)
    read = source.__getitem__ if isinstance(source, Mapping) else partial(getattr, source)
    values = {name: read(name) for name in names if name not in others}
    values.update(others)
    for name in times:
        values[name] = timestamp_to_pb(values[name])
    return kind(**values)


@cache
def _names(kind: Descriptor) -> tuple[Sequence[str], Sequence[str]]:
    """All fields, and those with a time."""
    times = [one.name for one in kind.fields if one.message_type is Timestamp.DESCRIPTOR and not one.is_repeated]
    return [one.name for one in kind.fields], times


def values_of(message: Message, *without: str) -> dict[str, Any]:
    """The values of all fields but those in `without`, by their names: the inverse of `fill`, for arguments with the same names.

    Times are as `timestamp_from_pb` has them, lists tuples, maps dictionaries; an `optional` field that is unset is None. Raises
    INVALID_ARGUMENT for what is no time.
    """
    return {
        name: None if optional and not message.HasField(name) else form(getattr(message, name))
        for name, optional, form in _forms(message.DESCRIPTOR)
        if name not in without
    }


@cache
def _forms(kind: Descriptor) -> Sequence[tuple[str, bool, Callable[[Any], Any]]]:
    """Of each field its name, whether it is `optional`, and what makes its value a plain one."""
    return [(one.name, one.has_presence and one.message_type is None, _form(one)) for one in kind.fields]


def _form(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.is_repeated:
        return dict if field.message_type and field.message_type.GetOptions().map_entry else tuple
    return timestamp_from_pb if field.message_type is Timestamp.DESCRIPTOR else lambda value: value


def timestamp_from_pb(message: Timestamp) -> datetime | None:
    """A Timestamp in UTC; the unset one (zero) is None. Raises INVALID_ARGUMENT for what is no time."""
    if not message.seconds and not message.nanos:
        return None
    try:
        if not 0 <= message.nanos < 10**9:
            raise ValueError("nanos must be in the range 0 to 999999999")
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except (ValueError, OverflowError) as error:
        raise _invalid(f"timestamp {message.seconds}.{message.nanos} is out of range ({error})") from None


def key_to_pb(key: AttemptKey) -> common_pb2.AttemptKey:
    """An attempt's key."""
    return common_pb2.AttemptKey(run_id=key.run_id, token=key.token)


def key_from_pb(message: common_pb2.AttemptKey) -> AttemptKey:
    """An attempt's key. Raises INVALID_ARGUMENT unless both numbers are positive."""
    if message.run_id <= 0 or message.token <= 0:
        raise _invalid(f"attempt key ({message.run_id}, {message.token}) must have a positive run_id and token")
    return AttemptKey(message.run_id, message.token)


def usage_to_pb(sample: UsageSample) -> common_pb2.UsageSample:
    """What an attempt's processes used at one moment."""
    return common_pb2.UsageSample(
        at=timestamp_to_pb(sample.at),
        cpu_seconds=sample.cpu_seconds,
        memory_bytes=sample.memory_bytes,
        processes=sample.processes,
    )


def usage_from_pb(message: common_pb2.UsageSample) -> UsageSample:
    """The inverse. Raises INVALID_ARGUMENT for a sample without a time."""
    at = timestamp_from_pb(message.at)
    if at is None:
        raise _invalid("a sample of usage has no time")
    return UsageSample(at, message.cpu_seconds, message.memory_bytes, message.processes)


def state_to_pb(state: AttemptState) -> "common_pb2.AttemptState.ValueType":
    """What an executor holds of an attempt."""
    return common_pb2.AttemptState.Value(f"ATTEMPT_STATE_{state.name}")


def outcome_to_pb(outcome: Outcome) -> common_pb2.Outcome:
    """How an attempt ended."""
    return common_pb2.Outcome(
        kind=_OUTCOME_KINDS[outcome.kind],
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        error_summary=outcome.error_summary,
        reason=outcome.reason.value,
        started_at=timestamp_to_pb(outcome.started_at),
        finished_at=timestamp_to_pb(outcome.finished_at),
        last_seq=outcome.last_seq,
        tree_empty=outcome.tree_empty,
        last_line=outcome.last_line,
        progress_json=progress_to_text(outcome.progress),
        result_json=outcome.result_json,
        log_ref=outcome.log_ref,
        steps=[step_to_pb(step) for step in outcome.steps],
        result_expected=outcome.result_expected,
        error_lines=[common_pb2.ErrorLine(seq=line.seq, text=line.text) for line in outcome.error_lines],
        never_started=outcome.never_started,
    )


def outcome_from_pb(message: common_pb2.Outcome) -> Outcome:
    """Raises INVALID_ARGUMENT when the kind, the reason or the time of the end is missing or unknown."""
    finished_at = timestamp_from_pb(message.finished_at)
    if finished_at is None:
        raise _invalid("outcome has no finished_at")
    try:
        reason = Reason(message.reason)
    except ValueError:
        raise _invalid(f"outcome has an unknown reason {message.reason!r}") from None
    return Outcome(
        kind=OutcomeKind[_name(common_pb2.OutcomeKind.items(), message.kind, "OUTCOME_KIND_")],
        reason=reason,
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        error_summary=message.error_summary,
        started_at=timestamp_from_pb(message.started_at),
        finished_at=finished_at,
        last_seq=message.last_seq,
        tree_empty=message.tree_empty,
        last_line=message.last_line,
        progress=progress_from_text(message.progress_json),
        result_json=message.result_json,
        log_ref=message.log_ref,
        steps=steps_from_pb(message.steps),
        result_expected=message.result_expected,
        error_lines=tuple(ErrorLine(line.seq, line.text) for line in message.error_lines),
        never_started=message.never_started,
    )


def step_to_pb(step: StepResult) -> common_pb2.StepResult:
    """A step that was started."""
    return common_pb2.StepResult(
        index=step.index,
        started_at=timestamp_to_pb(step.started_at),
        finished_at=timestamp_to_pb(step.finished_at),
        exit_code=step.exit_code,
        signal=step.signal,
        seq_from=step.seq_from,
        seq_to=step.seq_to,
    )


def steps_from_pb(messages: Iterable[common_pb2.StepResult]) -> tuple[StepResult, ...]:
    """Steps that were started; those without a time are left out."""
    found = ((message, timestamp_from_pb(message.started_at)) for message in messages)
    return tuple(
        StepResult(
            index=message.index,
            started_at=started_at,
            finished_at=timestamp_from_pb(message.finished_at),
            exit_code=message.exit_code if message.HasField("exit_code") else None,
            signal=message.signal if message.HasField("signal") else None,
            seq_from=message.seq_from,
            seq_to=message.seq_to,
        )
        for message, started_at in found
        if started_at is not None
    )


def progress_to_text(progress: Progress | None) -> str:
    """What a job said of itself as JSON; empty when it said nothing."""
    return json.dumps(progress.to_json(), separators=(",", ":"), ensure_ascii=False) if progress else ""


def progress_from_text(text: str) -> Progress | None:
    """The inverse. What cannot be read counts as nothing said: no outcome and no grant is lost for it."""
    if not text or len(text) > MAX_PROGRESS_CHARS:
        return None
    try:
        return Progress.from_json(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _name(items: Iterable[tuple[str, int]], value: int, prefix: str) -> str:
    names: dict[int, str] = {number: name for name, number in items}
    name = names.get(value, "").removeprefix(prefix)
    if not name or name == "UNSPECIFIED":
        raise _invalid(f"{prefix.lower()}{value} is not known")
    return name


def _invalid(message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, message)
