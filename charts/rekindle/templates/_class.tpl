{{/*
The RecoveryClass default: its spec, and what its definition's rules would say of it. The API server
would say so after everything else has been made. Messages are those of crds/recoveryclasses.yaml.
*/}}

{{/* As the values have it, and with the credential that the operator makes in each namespace. */}}
{{- define "rekindle.classSpec" -}}
{{- $spec := deepCopy .Values.recoveryClass.spec -}}
{{- if include "rekindle.storeSecret" . -}}
{{- $store := dict
      "addresses" (include "rekindle.store" $ | splitList ",")
      "secretRef" (dict "name" "rekindle-credential" "key" "secret") -}}
{{- if dig "sidecar" "store" "secretRef" dict $spec -}}
{{- $store = omit $store "secretRef" -}}
{{- end -}}
{{- if and (include "rekindle.tls" .) (not (dig "sidecar" "store" "caSecretRef" dict $spec)) -}}
{{- $_ := set $store "caSecretRef" (dict "name" "rekindle-credential" "key" "ca.crt") -}}
{{- end -}}
{{- $spec = merge $spec (dict "sidecar" (dict "store" $store)) -}}
{{- end -}}
{{- toJson $spec -}}
{{- end }}

{{- define "rekindle.classRules" -}}
{{- $wrong := list -}}
{{- $class := ternary .Values.recoveryClass.spec dict .Values.recoveryClass.create -}}
{{- $names := list -}}
{{- $pending := 0 -}}
{{- range $ordinal, $provider := $class.provisioning -}}
{{- $place := printf "recoveryClass.spec.provisioning[%d]" $ordinal -}}
{{- if has $provider.name $names -}}
{{- $wrong = append $wrong (printf "%s.name is %s again: give each provider a name of its own" $place $provider.name) -}}
{{- end -}}
{{- $names = append $names $provider.name -}}
{{- range $kind, $field := dict "ProvisioningRequest" "provisioningRequest" "Karpenter" "karpenter" "ClusterAPI" "clusterAPI" -}}
{{- if ne (eq $provider.provider $kind) (hasKey $provider $field) -}}
{{- $wrong = append $wrong (printf "%s: provider %s needs %s, and no other takes it" $place $kind $field) -}}
{{- end -}}
{{- end -}}
{{- if eq $provider.provider "PendingPods" -}}
{{- $pending = add1 $pending -}}
{{- if hasKey $provider "limits" -}}
{{- $wrong = append $wrong (printf "%s: provider PendingPods takes no limits, for it requests nothing itself; bound the autoscaler instead" $place) -}}
{{- end -}}
{{- end -}}
{{- range $requirement := dig "karpenter" "requirements" list $provider -}}
{{- if eq (has $requirement.operator (list "Exists" "DoesNotExist")) (gt (len ($requirement.values | default list)) 0) -}}
{{- $wrong = append $wrong (printf "%s.karpenter.requirements has %s %s: Exists and DoesNotExist take no values, all others need some" $place $requirement.key $requirement.operator) -}}
{{- end -}}
{{- end -}}
{{- $limits := merge (deepCopy ($provider.limits | default dict)) (dict "nodesPerRequestMax" 1 "nodesPerIncidentMax" 50 "nodesAtOnceMax" 20 "backOffSeconds" 30 "backOffSecondsMax" 600) -}}
{{- if gt (int $limits.nodesPerRequestMax) (int $limits.nodesAtOnceMax) -}}
{{- $wrong = append $wrong (printf "%s.limits: nodesPerRequestMax is above nodesAtOnceMax, so not even one request could be made; lower it, or raise nodesAtOnceMax" $place) -}}
{{- end -}}
{{- if gt (int $limits.nodesAtOnceMax) (int $limits.nodesPerIncidentMax) -}}
{{- $wrong = append $wrong (printf "%s.limits: nodesAtOnceMax is above nodesPerIncidentMax and could never be reached; lower it, or raise nodesPerIncidentMax (they are 20 and 50 unless they are given)" $place) -}}
{{- end -}}
{{- if gt (int $limits.backOffSeconds) (int $limits.backOffSecondsMax) -}}
{{- $wrong = append $wrong (printf "%s.limits: backOffSeconds is above backOffSecondsMax; it is the first wait, and doubles up to that one" $place) -}}
{{- end -}}
{{- end -}}
{{- if gt (int $pending) 1 -}}
{{- $wrong = append $wrong "recoveryClass.spec.provisioning: provisioning has PendingPods twice, which asks nobody twice; keep one of them" -}}
{{- end -}}
{{- if and (ne (dig "fencing" "mode" "None" $class) "None") (not (dig "fencing" "certainty" list $class)) -}}
{{- $wrong = append $wrong "recoveryClass.spec.fencing: fencing needs certainty; say how it is known that a lost node runs nothing any more, for otherwise two drivers could write at once" -}}
{{- end -}}
{{- $limits := merge (deepCopy ($class.limits | default dict)) (dict "nodesPerIncidentMax" 100 "nodesAtOnceMax" 50) -}}
{{- if gt (int $limits.nodesAtOnceMax) (int $limits.nodesPerIncidentMax) -}}
{{- $wrong = append $wrong "recoveryClass.spec.limits: nodesAtOnceMax is above nodesPerIncidentMax and could never be reached; lower it, or raise nodesPerIncidentMax (they are 50 and 100 unless they are given)" -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}
