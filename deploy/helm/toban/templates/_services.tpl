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

{{- /* Context: dict "root" $ "component" NAME "scaling" VALUES: by CPU, as part of its request. */ -}}
{{- define "toban.cpuScaling" -}}
{{- if lt (int .scaling.maxReplicas) (int .scaling.minReplicas) }}
{{- fail (printf "autoscaling of %s: maxReplicas is below minReplicas" .component) }}
{{- end }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "toban.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "toban.name" .root }}-{{ .component }}}
  minReplicas: {{ .scaling.minReplicas }}
  maxReplicas: {{ .scaling.maxReplicas }}
  behavior:
    scaleDown: {stabilizationWindowSeconds: {{ .scaling.scaleDownSeconds }}}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .scaling.cpuPercent }}}
{{- end }}
