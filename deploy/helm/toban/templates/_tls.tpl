{{- /* The Secret with the certificate of a service. */ -}}
{{- define "toban.tlsSecret" -}}
{{- $tls := .root.Values.tls -}}
{{- /* Certificates of users are never shared, even where services share one. */ -}}
{{- $shared := ternary $tls.secretName "" (has .component (list "coordinator" "executor" "log-archiver" "admin-web")) -}}
{{- $group := ternary .root.Values.executor.group "" (eq .component "executor") -}}
{{- $own := ternary (printf "%s-%s" .component $group) .component (ne $group "") -}}
{{- get $tls.secretNames .component | default $shared | default (printf "%s-%s" $tls.secretPrefix $own) -}}
{{- end }}

{{- /* The ConfigMap with the deny-list of serial numbers. */ -}}
{{- define "toban.deniedName" }}{{ .Values.tls.denied.configMap | default (printf "%s-denied" (include "toban.name" .)) }}{{ end }}

{{- define "toban.authorityName" }}{{ .Values.tls.secretPrefix }}-ca{{ end }}

{{- define "toban.issuerRef" -}}
{{- $given := .Values.tls.certManager.issuerRef -}}
issuerRef:
  {{- if $given.name }}
  name: {{ $given.name | quote }}
  kind: {{ $given.kind | quote }}
  group: {{ $given.group | quote }}
  {{- else }}
  name: {{ include "toban.authorityName" . }}
  kind: Issuer
  group: cert-manager.io
  {{- end }}
{{- end }}

{{- /* One Certificate: dict "root" $ "name" SECRET "component" LABEL "path" PATH OF THE ID "services" LIST. */ -}}
{{- define "toban.certificate" -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "toban.labels" . | nindent 4 }}
spec:
  secretName: {{ .name | quote }}
  commonName: {{ .path | replace "/" "-" }}
  uris: ["spiffe://{{ .root.Values.tls.trustDomain }}/{{ .path }}"]
  dnsNames:
    {{- $domain := .root.Values.tls.trustDomain }}
    {{- range .services }}
    - {{ . }}.{{ $domain }}
    {{- end }}
  duration: {{ .root.Values.tls.certManager.duration }}
  renewBefore: {{ .root.Values.tls.certManager.renewBefore }}
  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}
  usages: [digital signature, server auth, client auth]
  {{- include "toban.issuerRef" .root | nindent 2 }}
{{- end }}
