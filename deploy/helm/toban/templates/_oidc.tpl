{{- /* Sign-in with an OpenID provider (docs/sign-in.md): coordinators verify, the site has the client's secret, both reach the provider. */ -}}

{{- define "toban.oidcCoordinatorEnv" -}}
{{- $oidc := .root.Values.oidc | default dict -}}
{{- if $oidc.issuer }}
- {name: SCHEDULER_OIDC_ISSUER, value: {{ $oidc.issuer | quote }}}
- {name: SCHEDULER_OIDC_CLIENT_ID, value: {{ required "oidc.clientId: set it to what the provider calls Toban" $oidc.clientId | quote }}}
- {name: SCHEDULER_OIDC_NAME, value: {{ $oidc.name | quote }}}
- {name: SCHEDULER_OIDC_SCOPE, value: {{ $oidc.scope | quote }}}
- {name: SCHEDULER_OIDC_GROUPS_CLAIM, value: {{ $oidc.groupsClaim | quote }}}
- {name: SCHEDULER_OIDC_GROUPS, value: {{ $oidc.groups | toJson | quote }}}
- {name: SCHEDULER_OIDC_CREATE_ACCOUNTS, value: {{ $oidc.createAccounts | quote }}}
- {name: SCHEDULER_OIDC_SESSION_MINUTES, value: {{ $oidc.sessionMinutes | quote }}}
- {name: SCHEDULER_PASSWORD_SIGN_IN, value: {{ $oidc.passwordSignIn | quote }}}
{{- include "toban.oidcCaEnv" . }}
{{- end }}
{{- end }}

{{- define "toban.oidcSiteEnv" -}}
{{- with .root.Values.oidc }}
{{- if and .issuer .clientSecret.name }}
- {name: SCHEDULER_OIDC_CLIENT_SECRET_FILE, value: /etc/scheduler/secrets/oidc/client-secret}
{{- end }}
{{- end }}
{{- include "toban.oidcCaEnv" . }}
{{- end }}

{{- define "toban.oidcCaEnv" -}}
{{- with .root.Values.oidc }}
{{- if and .issuer .caSecret.name }}
- {name: SCHEDULER_OIDC_CA_FILE, value: /etc/scheduler/ca/oidc/ca.crt}
{{- end }}
{{- end }}
{{- end }}

{{- /* dict "root" $ "secret" BOOL: whether the pod may have the client's secret. */ -}}
{{- define "toban.oidcMount" -}}
{{- $secret := .secret -}}
{{- with .root.Values.oidc }}
{{- if and .issuer .clientSecret.name $secret }}
- {name: oidc, mountPath: /etc/scheduler/secrets/oidc, readOnly: true}
{{- end }}
{{- if and .issuer .caSecret.name }}
- {name: oidc-ca, mountPath: /etc/scheduler/ca/oidc, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "toban.oidcVolume" -}}
{{- $secret := .secret -}}
{{- with .root.Values.oidc }}
{{- if and .issuer .clientSecret.name $secret }}
{{ include "toban.secretFiles" (dict "volume" "oidc" "name" .clientSecret.name "items" (dict .clientSecret.key "client-secret")) }}
{{- end }}
{{- if .issuer }}
{{- include "toban.caVolume" (dict "volume" "oidc-ca" "secret" .caSecret) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Egress to the provider, as a list of stores: none without `oidc.to`. */ -}}
{{- define "toban.oidcEgress" -}}
{{- $oidc := .Values.oidc | default dict -}}
{{- if and $oidc.issuer $oidc.to -}}
{{- list (dict "to" $oidc.to "ports" $oidc.ports) | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end }}
