"""The keys of a trigger."""

from __future__ import annotations

from toban_domain.manifest.reference.fields import Kind, field

TRIGGER = Kind(
    name="EventTrigger",
    meaning="Which events start a job, and with which payload.",
    example="""\
apiVersion: toban/v1
kind: EventTrigger
metadata: {name: invoice-when-paid}
spec: {event_type: order.paid, job: invoice}
""",
    fields=(
        field(
            "event_type",
            "text",
            "the type of the events; letters, digits and `. _ : / -`, at most 128",
            unset="required",
            example="order.paid",
        ),
        field("job", "name", "the job to run", unset="required", example="invoice"),
        field("enabled", "true, false", "a disabled trigger starts nothing", default="true", example="false"),
        field(
            "filter",
            "path to condition",
            "all must hold. A path is keys of the event's payload joined by dots; a condition is a value, a list of values, or operators: "
            "`exists prefix suffix gt gte lt lte not`",
            default="{}",
            example="{order.total: {gte: 100}, order.country: [DE, AT]}",
        ),
        field(
            "payload",
            "mapping, or one reference",
            "laid over the job's `default_payload`; its texts may refer to the event: `{{ event.payload.a.b }}`, `{{ event.payload }}`, "
            "`{{ event.type }}`, `{{ event.id }}`, `{{ event.dedupe_key }}`",
            default="{}",
            example='{order: "{{ event.payload.order.id }}"}',
        ),
    ),
)
