{{- define "slotferry.topom" -}}{{ printf "%s-topom" .Release.Name }}{{- end }}
{{- define "slotferry.proxy" -}}{{ printf "%s-proxy" .Release.Name }}{{- end }}

{{/* What finds the pods of a part; it never changes. Takes the chart's context and the part. */}}
{{- define "slotferry.selector" -}}
app.kubernetes.io/name: slotferry
app.kubernetes.io/instance: {{ .context.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "slotferry.labels" -}}
{{ include "slotferry.selector" . }}
app.kubernetes.io/version: {{ .context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .context.Chart.Name .context.Chart.Version }}
{{- end }}

{{/* The port of an address, host:port. */}}
{{- define "slotferry.port" -}}{{ regexFind "[0-9]+$" . }}{{- end }}

{{/* A value in TOML: that of JSON, but for tables. */}}
{{- define "slotferry.toml" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $name := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ $name }} = {{ include "slotferry.toml" (get $ $name) }}{{ end -}} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $one := . }}{{ if $index }}, {{ end }}{{ include "slotferry.toml" $one }}{{ end }}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* A process's settings as its file. */}}
{{- define "slotferry.file" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ include "slotferry.toml" $value }}
{{- end }}
{{- end }}

{{/* How topom is reached. */}}
{{- define "slotferry.scheme" -}}
{{- if .Values.topom.settings.tls_certificate }}https{{ else }}http{{ end }}
{{- end }}

{{/* A proxy's settings in JSON, with the addresses of all topoms of the release, unless others are given. */}}
{{- define "slotferry.proxySettings" -}}
{{- $settings := deepCopy .Values.proxy.settings }}
{{- if not $settings.topom }}
{{- $name := include "slotferry.topom" . }}
{{- $port := include "slotferry.port" .Values.topom.settings.listen }}
{{- $scheme := include "slotferry.scheme" . }}
{{- $urls := list }}
{{- range $number := until (int .Values.topom.replicas) }}
{{- $urls = append $urls (printf "%s://%s-%d.%s:%s" $scheme $name $number $name $port) }}
{{- end }}
{{- $_ := set $settings "topom" $urls }}
{{- end }}
{{- toJson $settings }}
{{- end }}

{{/* Variables that name the files of settings that come from Secrets. Takes the process's name and its secrets. */}}
{{- define "slotferry.secretFiles" -}}
{{- $process := .process }}
{{- range $name, $from := .secrets }}
{{- if $from }}
- {name: {{ printf "SLOTFERRY_%s_%s_FILE" (upper $process) (upper $name) }}, value: {{ printf "/run/secrets/slotferry/%s" $name }}}
{{- end }}
{{- end }}
{{- end }}

{{/* The volume with these files. Takes the secrets. */}}
{{- define "slotferry.secretVolume" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range $name, $from := . }}
      {{- if $from }}
      - secret: {name: {{ $from.name | quote }}, items: [{key: {{ $from.key | quote }}, path: {{ $name }}}]}
      {{- end }}
      {{- end }}
{{- end }}

{{- define "slotferry.image" -}}{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}{{- end }}

{{/* What every pod is held to: the rules of the pod security standard "restricted". */}}
{{- define "slotferry.pod" -}}
# Kubernetes would add variables that begin with a service's name, SLOTFERRY_, as the variables of settings do.
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 8380
  runAsGroup: 8380
  fsGroup: 8380
  seccompProfile: {type: RuntimeDefault}
{{- with .context.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .values.affinity }}
affinity: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "slotferry.selector" . | nindent 8 }}
{{- end }}

{{- define "slotferry.container" -}}
image: {{ include "slotferry.image" .context | quote }}
imagePullPolicy: {{ .context.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{ toJson .values.resources }}
{{- end }}

{{/* Restarts only what hangs: a topom without its store, and a proxy that was fenced or waits for topom, answer. */}}
{{- define "slotferry.probes" -}}
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}{{ if eq .scheme "https" }}, scheme: HTTPS{{ end }}}
  periodSeconds: 2
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}{{ if eq .scheme "https" }}, scheme: HTTPS{{ end }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
