{{- /* Network policies. The connections are those of docs/architecture.md; a test compares them with the table of callers in the code. */ -}}

{{- /* A policy of one component: dict "root" $ "component" NAME "values" VALUES "callers" LIST "calls" LIST "stores" LIST OF NAMES "traced" BOOL. */ -}}
{{- define "toban.networkPolicy" -}}
{{- $root := .root -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "toban.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "toban.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- if or .callers .others }}
    - from:
        {{- range .callers }}
        - podSelector:
            matchLabels:
              {{- include "toban.selector" (dict "root" $root "component" .) | nindent 14 }}
        {{- end }}
        {{- with .others }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {port: {{ .servedPort }}, protocol: TCP}
    {{- end }}
    {{- if and .scraped $root.Values.networkPolicy.prometheus }}
    - from:
        {{- toYaml $root.Values.networkPolicy.prometheus | nindent 8 }}
      ports:
        - {port: {{ include "toban.adminPort" $root }}, protocol: TCP}
    {{- end }}
  egress:
    - to:
        {{- toYaml $root.Values.networkPolicy.dns | nindent 8 }}
      ports:
        {{- /* With `--reuse-values` the values may be those of an earlier chart; a missing port would allow every port. */ -}}
        {{- range $root.Values.networkPolicy.dnsPorts | default (list 53) }}
        - {port: {{ . }}, protocol: UDP}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
    {{- range .calls }}
    - to:
        - podSelector:
            matchLabels:
              {{- include "toban.selector" (dict "root" $root "component" .) | nindent 14 }}
      ports:
        - {port: {{ include "toban.grpcPort" $root }}, protocol: TCP}
    {{- end }}
    {{- range .stores }}
    {{- include "toban.storeRule" (dict "to" .to "ports" .ports) | nindent 4 }}
    {{- end }}
    {{- if and .traced $root.Values.tracing.endpoint }}
    {{- if not $root.Values.tracing.to }}
    {{- fail "tracing.to: set the peers of tracing.endpoint, because jobs share the network of their executor" }}
    {{- end }}
    {{- $port := regexReplaceAll "^https?://[^/]*:([0-9]+)(/.*)?$" $root.Values.tracing.endpoint "${1}" }}
    {{- include "toban.storeRule" (dict "to" $root.Values.tracing.to "ports" (list $port)) | nindent 4 }}
    {{- end }}
    {{- with .further }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* Egress of a component to PostgreSQL: dict "root" $ "values" VALUES. Its own Secret may use another port. */ -}}
{{- define "toban.postgresql" -}}
{{- $own := .values.databaseSecret | default dict -}}
{{- $port := ternary ($own.port | default .root.Values.postgresql.port) .root.Values.postgresql.port (not (empty $own.name)) -}}
{{- dict "to" .root.Values.postgresql.to "ports" (list ($port | int64)) | toJson -}}
{{- end }}

{{- /* The port of the object store: as given, else that of its URL. */ -}}
{{- define "toban.s3Port" -}}
{{- $url := urlParse .endpointUrl -}}
{{- $ofUrl := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "80" "443" (eq $url.scheme "http")) -}}
{{- .port | default $ofUrl -}}
{{- end }}

{{- define "toban.storeRule" -}}
- ports:
    {{- range .ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
