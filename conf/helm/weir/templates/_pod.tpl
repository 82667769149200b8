{{- define "weir.labels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Whether the warehouse is in an object store: "" or "true". */}}
{{- define "weir.remote" -}}
{{- if contains "://" .Values.config.warehouse }}true{{ end -}}
{{- end -}}

{{- define "weir.claim" -}}
{{ .Values.storage.claim | default .Release.Name }}
{{- end -}}

{{/* What the pods of driver and executors have in common. */}}
{{- define "weir.pod" -}}
{{- $pod := include "weir.pod.own" . | fromYaml }}
{{- toYaml (mustMergeOverwrite $pod .Values.pod) }}
{{- end -}}

{{- define "weir.pod.own" -}}
serviceAccountName: {{ .Release.Name }}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - {name: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* The same of their containers. */}}
{{- define "weir.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- with .Values.secrets }}
envFrom:
{{- range . }}
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "weir.mounts" -}}
{{- if not (include "weir.remote" .) }}
- {name: warehouse, mountPath: /data}
{{- end }}
{{- range $i, $name := .Values.secretFiles }}
- {name: secret-{{ $i }}, mountPath: /etc/weir-secrets/{{ $name }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "weir.volumes" -}}
{{- if not (include "weir.remote" .) }}
- name: warehouse
  persistentVolumeClaim: {claimName: {{ include "weir.claim" . }}}
{{- end }}
{{- range $i, $name := .Values.secretFiles }}
- name: secret-{{ $i }}
  secret: {secretName: {{ $name }}}
{{- end }}
{{- end -}}
