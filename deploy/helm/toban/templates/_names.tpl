{{- /* Names and labels. A component has its name in certificates: coordinator, executor, log-archiver, admin-web, migrate. */ -}}

{{- define "toban.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* Selector labels of policies and services: dict "root" $ "component" NAME; without a component all pods of the release. */ -}}
{{- define "toban.selector" -}}
app.kubernetes.io/name: toban
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "toban.labels" -}}
{{ include "toban.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "toban.metadata" -}}
name: {{ include "toban.name" .root }}{{ with .component }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "toban.labels" . | nindent 2 }}
{{- end }}

{{- define "toban.image" -}}
{{- default (printf "%s%s:%s" .root.Values.image.prefix .image (default .root.Chart.AppVersion .root.Values.image.tag)) .values.image -}}
{{- end }}

{{- define "toban.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "toban.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- /* Whose the Jobs of kubernetes steps are. */ -}}
{{- define "toban.kubernetesOwner" -}}
{{- .Values.executor.kubernetes.owner | default (printf "%s-%s" .Release.Namespace (include "toban.name" .) | trunc 63 | trimSuffix "-") -}}
{{- end }}

{{- /* Name of the service account, Role and RoleBinding of executors for kubernetes steps. */ -}}
{{- define "toban.kubernetesSteps" }}{{ include "toban.name" . }}-kubernetes-steps{{ end }}

{{- /* Ports; the images bind the same ones. */ -}}
{{- define "toban.grpcPort" }}50051{{ end }}
{{- define "toban.adminPort" }}9464{{ end }}
{{- define "toban.httpPort" }}8080{{ end }}

{{- /* host:port,host:port of the coordinators and log-archivers. */ -}}
{{- define "toban.coordinators" -}}
{{- $own := printf "%s-coordinator.%s.svc:%s" (include "toban.name" .) .Release.Namespace (include "toban.grpcPort" .) -}}
{{- if not (or .Values.coordinator.enabled .Values.external.coordinators) }}
{{- fail "external.coordinators: set host:port of the coordinators, because coordinator.enabled is false" }}
{{- end }}
{{- .Values.external.coordinators | default (list $own) | join "," -}}
{{- end }}
{{- define "toban.logArchivers" -}}
{{- $own := printf "%s-log-archiver.%s.svc:%s" (include "toban.name" .) .Release.Namespace (include "toban.grpcPort" .) -}}
{{- if not (or .Values.logArchiver.enabled .Values.external.logArchivers) }}
{{- fail "external.logArchivers: set host:port of the log-archivers, because logArchiver.enabled is false; without them jobs block on writing output" }}
{{- end }}
{{- .Values.external.logArchivers | default (list $own) | join "," -}}
{{- end }}
