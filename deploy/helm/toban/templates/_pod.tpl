{{- /* Parts of pods shared by all components. Context: dict "root" $ "component" NAME "values" VALUES. */ -}}

{{- define "toban.podMetadata" -}}
labels:
  {{- include "toban.labels" . | nindent 2 }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Numbers of values are floats: a large one would be written as 1e+09. No token, no service links (a Service called scheduler would set SCHEDULER_PORT, which stops a start), no root but for isolated jobs. */ -}}
{{- define "toban.podSecurity" -}}
{{- $root := ne (include "toban.runsAsRoot" .) "" }}
serviceAccountName: {{ .serviceAccountName | default .values.serviceAccountName | default (include "toban.serviceAccount" .root) | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: {{ not $root }}
  runAsUser: {{ $root | ternary 0 .root.Values.security.uid | int64 }}
  runAsGroup: {{ $root | ternary 0 .root.Values.security.gid | int64 }}
  {{- if not $root }}
  fsGroup: {{ .root.Values.security.gid | int64 }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Not empty for executors that give each slot a uid of its own (docs/isolation.md). */ -}}
{{- define "toban.runsAsRoot" }}{{ if and (eq .component "executor") (eq (.values.isolation | default "auto") "isolated") }}yes{{ end }}{{ end }}

{{- define "toban.placement" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "toban.spread" -}}
topologySpreadConstraints:
  {{- $context := . }}
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: {{ $context.values.spread }}
    labelSelector:
      matchLabels:
        {{- include "toban.selector" $context | nindent 8 }}
  {{- end }}
{{- end }}

{{- define "toban.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  {{- if include "toban.runsAsRoot" . }}
  capabilities: {drop: [ALL], add: [CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETPCAP, SETUID]}
  {{- else }}
  capabilities: {drop: [ALL]}
  {{- end }}
{{- end }}

{{- define "toban.container" -}}
name: {{ .component }}
image: {{ include "toban.image" . | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{ include "toban.containerSecurity" . }}
resources:
  {{- toYaml .values.resources | nindent 2 }}
{{- end }}

{{- /* /livez depends on neither PostgreSQL nor Redis, so an outage restarts nothing. */ -}}
{{- define "toban.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 3
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{- /* A server behind a Service keeps serving until its endpoint is removed everywhere. */ -}}
{{- define "toban.linger" -}}
lifecycle:
  preStop:
    exec: {command: [sleep, "5"]}
{{- end }}

{{- define "toban.env" -}}
- {name: SCHEDULER_TLS_DIR, value: /etc/scheduler/tls}
- {name: SCHEDULER_TRUST_DOMAIN, value: {{ .root.Values.tls.trustDomain | quote }}}
{{- if or .root.Values.tls.secretName .root.Values.tls.acceptShared }}
- {name: SCHEDULER_TLS_SHARED_IDENTITY, value: "1"}
{{- end }}
- {name: SCHEDULER_LOG_FORMAT, value: json}
- {name: SCHEDULER_LOG_LEVEL, value: {{ .root.Values.logs.level }}}
- {name: SCHEDULER_ADMIN_HOST, value: {{ include "toban.anyAddress" .root }}}
- {name: SCHEDULER_ADMIN_PORT, value: {{ include "toban.adminPort" . | quote }}}
{{- if include "toban.adminTokenSecret" .root }}
- {name: SCHEDULER_ADMIN_TOKEN_FILE, value: /etc/scheduler/secrets/admin/token}
{{- end }}
{{- include "toban.tracingEnv" . }}
{{- end }}

{{- define "toban.tracingEnv" -}}
{{- with .root.Values.tracing.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{- /* Peers connect to a pod by its address and verify the service name in its certificate, not the address. */ -}}
{{- define "toban.grpcEnv" -}}
- {name: SCHEDULER_GRPC_HOST, value: {{ include "toban.anyAddress" .root }}}
- {name: SCHEDULER_GRPC_PORT, value: {{ include "toban.grpcPort" . | quote }}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: SCHEDULER_ADVERTISE_HOST, value: {{ ternary "[$(POD_IP)]" "$(POD_IP)" (eq .root.Values.network.ipFamily "IPv6") | quote }}}
{{- end }}

{{- define "toban.anyAddress" }}{{ ternary "\"::\"" "0.0.0.0" (eq .Values.network.ipFamily "IPv6") }}{{ end }}

{{- define "toban.extraEnv" -}}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The Secret with the token of the admin ports; empty = none. The whole value is missing with `--reuse-values` and the values of an earlier chart. */ -}}
{{- define "toban.adminTokenSecret" }}{{ (.Values.adminToken | default dict).existingSecret }}{{ end }}
{{- /* The same for a pod: the one of the CLI serves no admin port. */ -}}
{{- define "toban.adminTokenOf" }}{{ if ne .component "admin-cli" }}{{ include "toban.adminTokenSecret" .root }}{{ end }}{{ end }}

{{- define "toban.mounts" -}}
- {name: tls, mountPath: /etc/scheduler/tls, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if include "toban.adminTokenOf" . }}
- {name: admin-token, mountPath: /etc/scheduler/secrets/admin, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "toban.volumes" -}}
- name: tls
  {{- $bundle := .root.Values.tls.caBundle }}
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "toban.tlsSecret" . | quote }}
          items:
            - {key: tls.crt, path: tls.crt}
            - {key: tls.key, path: tls.key}
            {{- if not $bundle.name }}
            - {key: ca.crt, path: ca.crt}
            {{- end }}
      {{- if $bundle.name }}
      - configMap:
          name: {{ $bundle.name | quote }}
          items: [{key: {{ $bundle.key | quote }}, path: ca.crt}]
      {{- end }}
      # Optional, and always mounted: a first entry changes no pod.
      - configMap:
          name: {{ include "toban.deniedName" .root | quote }}
          items: [{key: denied, path: denied}]
          optional: true
- name: tmp
  emptyDir: {sizeLimit: {{ .values.tmpSize | default "256Mi" }}}
{{- if include "toban.adminTokenOf" . }}
{{ include "toban.secretFiles" (dict "volume" "admin-token" "name" (include "toban.adminTokenSecret" .root) "items" (dict .root.Values.adminToken.key "token")) }}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
