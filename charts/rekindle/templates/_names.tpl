{{/*
Names and parts that several templates use. Names are fixed: definitions, rights and the webhook are
of the whole cluster, so there is one installation in it.
*/}}

{{- define "rekindle.labels" -}}
app.kubernetes.io/name: rekindle
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* By which a part's pods are selected: (list . "operator"). They can never change. */}}
{{- define "rekindle.selector" -}}
app.kubernetes.io/name: rekindle
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* An image by digest, else by tag: (dict "image" ... "tag" ...). */}}
{{- define "rekindle.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end }}

{{- define "rekindle.operatorImage" -}}
{{- include "rekindle.image" (dict "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end }}

{{/* HOST:PORT of every server of the store. Drivers of other namespaces use the same. */}}
{{- define "rekindle.store" -}}
{{- if .Values.zookeeper.enabled -}}
{{- $servers := list -}}
{{- range $ordinal := until (int .Values.zookeeper.replicas) -}}
{{- $servers = append $servers (printf "%s:%s" (include "rekindle.server" (list $ $ordinal)) (ternary "2281" "2181" (eq (include "rekindle.tls" $) "true"))) -}}
{{- end -}}
{{- join "," $servers -}}
{{- else -}}
{{- join "," .Values.store.addresses -}}
{{- end -}}
{{- end }}

{{/* The Secret with the store's secret: the one that is named, or the chart's; none for an open store. */}}
{{- define "rekindle.storeSecret" -}}
{{- if .Values.store.secret.name -}}
{{- .Values.store.secret.name -}}
{{- else if not .Values.store.open -}}
rekindle-store
{{- end -}}
{{- end }}

{{/* Whether all speak TLS to the store: unless an open one or plain text was asked for. */}}
{{- define "rekindle.tls" -}}
{{- if not (or .Values.store.open .Values.store.plaintext) -}}
true
{{- end -}}
{{- end }}

{{/* Whether the operator makes the webhook's certificate. */}}
{{- define "rekindle.issuesWebhookCertificate" -}}
{{- $certificates := .Values.webhook.certificates -}}
{{- if and .Values.webhook.enabled (not (or $certificates.certManager $certificates.secret)) -}}
true
{{- end -}}
{{- end }}

{{/* Whether the operator makes the certificate of the chart's servers. */}}
{{- define "rekindle.issuesStoreCertificate" -}}
{{- $tls := .Values.zookeeper.tls -}}
{{- if and (include "rekindle.tls" .) .Values.zookeeper.enabled (not (or $tls.certManager $tls.secret)) -}}
true
{{- end -}}
{{- end }}

{{/* The Secret with the certificate of the chart's servers; that of the operator is StoreCertificate's. */}}
{{- define "rekindle.serverSecret" -}}
{{- $tls := .Values.zookeeper.tls -}}
{{- if $tls.secret -}}
{{- $tls.secret -}}
{{- else -}}
{{- ternary "rekindle-zookeeper-certificate" "rekindle-zookeeper-tls" $tls.certManager -}}
{{- end -}}
{{- end }}

{{/* Its key with the authorities: the operator keeps several while it changes them. */}}
{{- define "rekindle.authorityKey" -}}
{{- ternary "trusted-ca.crt" "ca.crt" (eq (include "rekindle.issuesStoreCertificate" .) "true") -}}
{{- end }}

{{/* Host name of one server of ZooKeeper: (list . ordinal). */}}
{{- define "rekindle.server" -}}
rekindle-zookeeper-{{ index . 1 }}.rekindle-zookeeper.{{ (index . 0).Release.Namespace }}.svc
{{- end }}

{{/* Where a part's pods may be: (list . "operator" values.antiAffinity). */}}
{{- define "rekindle.spread" -}}
{{- $root := index . 0 -}}
{{- $selector := include "rekindle.selector" (list $root (index . 1)) -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ first $root.Values.failureDomainKeys }}
    whenUnsatisfiable: {{ $root.Values.whenDomainsAreMissing }}
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
affinity:
  podAntiAffinity:
    {{- if eq (index . 2) "Required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- $selector | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
    {{- end }}
{{- end }}

{{/* Of a container that may do nothing besides its work. */}}
{{- define "rekindle.confinement" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
