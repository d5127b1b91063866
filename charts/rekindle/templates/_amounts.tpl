{{/*
Quantities and durations, and which of the values are too large for others. What cannot be read is 0:
_checks.tpl says so of its text.
*/}}

{{/* A quantity as a number, of bytes or of cores. */}}
{{- define "rekindle.amount" -}}
{{- $text := toString . -}}
{{- $units := dict "n" 1e-9 "u" 1e-6 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $units = merge $units (dict "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0) -}}
{{- $number := regexFind "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?" $text -}}
{{- mulf ($number | float64) (get $units (regexFind "[A-Za-z]+$" $text) | default 1.0) -}}
{{- end }}

{{/* A duration in seconds. */}}
{{- define "rekindle.seconds" -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $seconds = add $seconds (mul (regexFind "^[0-9]+" . | int) (get (dict "h" 3600 "m" 60 "s" 1) (regexFind "[hms]$" .))) -}}
{{- end -}}
{{- $seconds -}}
{{- end }}

{{- define "rekindle.amountFaults" -}}
{{- $wrong := list -}}
{{- range $part, $resources := dict "operator" .Values.operator.resources "webhook" .Values.webhook.resources "zookeeper" .Values.zookeeper.resources -}}
{{- range $resource, $request := $resources.requests -}}
{{- $limit := get ($resources.limits | default dict) $resource | toString -}}
{{- if and $limit (gt (include "rekindle.amount" $request | float64) (include "rekindle.amount" $limit | float64)) -}}
{{- $wrong = append $wrong (printf "%s.resources.requests.%s is %v, above limits.%s, which is %s: lower it, or raise the limit" $part $resource $request $resource $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $limit := dig "limits" "memory" "" .Values.zookeeper.resources | toString -}}
{{- $heap := mulf .Values.zookeeper.heapMegabytes 1048576.0 -}}
{{- if and .Values.zookeeper.enabled $limit (ge $heap (include "rekindle.amount" $limit | float64)) -}}
{{- $wrong = append $wrong (printf "zookeeper.heapMegabytes is %d, but zookeeper.resources.limits.memory is %s: about twice the heap is needed" (int .Values.zookeeper.heapMegabytes) $limit) -}}
{{- end -}}
{{- $certificates := .Values.webhook.certificates -}}
{{- $duration := include "rekindle.seconds" $certificates.duration | int -}}
{{- $before := include "rekindle.seconds" $certificates.renewBefore | int -}}
{{- if ge $before $duration -}}
{{- $wrong = append $wrong (printf "webhook.certificates.renewBefore is %s, which is not within duration, %s: lower it, or raise duration" $certificates.renewBefore $certificates.duration) -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}
