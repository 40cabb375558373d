{{- /* Credentials of PostgreSQL, Redis and S3: existing Secrets, as files, only in the pods that may have them. */ -}}

{{- define "toban.databaseEnv" -}}
- {name: SCHEDULER_DATABASE_URL_FILE, value: /etc/scheduler/secrets/postgresql/url}
{{- end }}
{{- define "toban.databaseMount" -}}
- {name: postgresql, mountPath: /etc/scheduler/secrets/postgresql, readOnly: true}
{{- if .root.Values.postgresql.caSecret.name }}
- {name: postgresql-ca, mountPath: /etc/scheduler/ca/postgresql, readOnly: true}
{{- end }}
{{- end }}
{{- define "toban.databaseVolume" -}}
{{- $own := .values.databaseSecret | default dict -}}
{{- $name := $own.name | default .root.Values.postgresql.existingSecret | required "postgresql.existingSecret: name the Secret that holds the PostgreSQL URL" -}}
{{- $key := ternary $own.key .root.Values.postgresql.key (not (empty $own.name)) -}}
{{ include "toban.secretFiles" (dict "volume" "postgresql" "name" $name "items" (dict $key "url")) }}
{{- include "toban.caVolume" (dict "volume" "postgresql-ca" "secret" .root.Values.postgresql.caSecret) }}
{{- end }}

{{- define "toban.redisEnv" -}}
- {name: SCHEDULER_REDIS_URL_FILE, value: /etc/scheduler/secrets/redis/url}
{{- end }}
{{- define "toban.redisMount" -}}
- {name: redis, mountPath: /etc/scheduler/secrets/redis, readOnly: true}
{{- if .root.Values.redis.caSecret.name }}
- {name: redis-ca, mountPath: /etc/scheduler/ca/redis, readOnly: true}
{{- end }}
{{- end }}
{{- define "toban.redisVolume" -}}
{{- $name := required "redis.existingSecret: name the Secret that holds the Redis URL" .root.Values.redis.existingSecret -}}
{{ include "toban.secretFiles" (dict "volume" "redis" "name" $name "items" (dict .root.Values.redis.key "url")) }}
{{- include "toban.caVolume" (dict "volume" "redis-ca" "secret" .root.Values.redis.caSecret) }}
{{- end }}

{{- define "toban.secretsKeyEnv" -}}
{{- if .root.Values.secrets.existingSecret }}
- {name: SCHEDULER_SECRETS_KEY_FILE, value: /etc/scheduler/secrets/jobs/keys}
{{- end }}
{{- end }}
{{- define "toban.secretsKeyMount" -}}
{{- if .root.Values.secrets.existingSecret }}
- {name: secrets-key, mountPath: /etc/scheduler/secrets/jobs, readOnly: true}
{{- end }}
{{- end }}
{{- define "toban.secretsKeyVolume" -}}
{{- with .root.Values.secrets }}
{{- if .existingSecret }}
{{ include "toban.secretFiles" (dict "volume" "secrets-key" "name" .existingSecret "items" (dict .key "keys")) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "toban.s3Env" -}}
{{- with .root.Values.s3 }}
{{- if .bucket }}
- {name: SCHEDULER_S3_BUCKET, value: {{ .bucket | quote }}}
{{- if .endpointUrl }}
- {name: SCHEDULER_S3_ENDPOINT_URL, value: {{ .endpointUrl | quote }}}
{{- end }}
- {name: SCHEDULER_S3_REGION, value: {{ .region | quote }}}
- {name: SCHEDULER_S3_ADDRESSING_STYLE, value: {{ .addressingStyle }}}
{{- if .existingSecret }}
- {name: SCHEDULER_S3_ACCESS_KEY_FILE, value: /etc/scheduler/secrets/s3/access_key}
- {name: SCHEDULER_S3_SECRET_KEY_FILE, value: /etc/scheduler/secrets/s3/secret_key}
{{- end }}
{{- if .caSecret.name }}
- {name: AWS_CA_BUNDLE, value: /etc/scheduler/ca/s3/ca.crt}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- define "toban.s3Mount" -}}
{{- with .root.Values.s3 }}
{{- if .bucket }}
{{- if .existingSecret }}
- {name: s3, mountPath: /etc/scheduler/secrets/s3, readOnly: true}
{{- end }}
{{- if .caSecret.name }}
- {name: s3-ca, mountPath: /etc/scheduler/ca/s3, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- define "toban.s3Volume" -}}
{{- with .root.Values.s3 }}
{{- if .bucket }}
{{- if .existingSecret }}
{{ include "toban.secretFiles" (dict "volume" "s3" "name" .existingSecret "items" (dict .accessKeyKey "access_key" .secretKeyKey "secret_key")) }}
{{- end }}
{{- include "toban.caVolume" (dict "volume" "s3-ca" "secret" .caSecret) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "toban.secretFiles" -}}
- name: {{ .volume }}
  secret:
    secretName: {{ .name | quote }}
    defaultMode: 0440
    items:
      {{- range $key, $path := .items }}
      - {key: {{ $key | quote }}, path: {{ $path }}}
      {{- end }}
{{- end }}
{{- define "toban.caVolume" -}}
{{- if .secret.name }}
{{ include "toban.secretFiles" (dict "volume" .volume "name" .secret.name "items" (dict .secret.key "ca.crt")) }}
{{- end }}
{{- end }}

{{- /* A service with a database starts when the schema exists, regardless of how it was created. */ -}}
{{- define "toban.waitForSchema" -}}
initContainers:
  - name: schema
    image: {{ include "toban.image" . | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: [/opt/toban/bin/python, -m, toban_store.migrate, wait]
    {{- include "toban.containerSecurity" . | nindent 4 }}
    env:
      {{- include "toban.databaseEnv" . | nindent 6 }}
    volumeMounts:
      {{- include "toban.databaseMount" . | nindent 6 }}
    resources:
      requests: {cpu: 50m, memory: 96Mi}
      limits: {memory: 256Mi}
{{- end }}
