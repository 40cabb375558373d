{{- /* Context: dict "root" $ "component" NAME "ports" LIST OF NAMES "headless" BOOL. */ -}}
{{- define "toban.service" -}}
{{- $numbers := dict "grpc" (include "toban.grpcPort" .root | int) "admin" (include "toban.adminPort" .root | int) "http" (include "toban.httpPort" .root | int) -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "toban.metadata" . | nindent 2 }}
spec:
  {{- if .headless }}
  clusterIP: None
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "toban.selector" . | nindent 4 }}
  ports:
    {{- range .ports }}
    - {name: {{ . }}, port: {{ get $numbers . }}, targetPort: {{ . }}}
    {{- end }}
{{- end }}

{{- define "toban.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "toban.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .values.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "toban.selector" . | nindent 6 }}
{{- end }}
