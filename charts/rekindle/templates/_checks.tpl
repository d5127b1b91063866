{{/*
What the schema cannot say, or only by a pattern: values that do not fit together, and texts of a
form. One message for all that is wrong, each with its place and remedy. operator/deployment.yaml
includes it, so nothing is installed.
*/}}

{{- define "rekindle.check" -}}
{{- $wrong := concat
      (include "rekindle.storeFaults" . | fromJsonArray)
      (include "rekindle.classFaults" . | fromJsonArray)
      (include "rekindle.classRules" . | fromJsonArray)
      (include "rekindle.otherFaults" . | fromJsonArray)
      (include "rekindle.trustFaults" . | fromJsonArray)
      (include "rekindle.amountFaults" . | fromJsonArray)
      (include "rekindle.textFaults" . | fromJsonArray) -}}
{{- if $wrong -}}
{{- fail (printf "\n\nThe values cannot be used:\n- %s\n" (join "\n- " $wrong)) -}}
{{- end -}}
{{- end }}

{{- define "rekindle.storeFaults" -}}
{{- $wrong := list -}}
{{- if and .Values.zookeeper.enabled .Values.store.addresses -}}
{{- $wrong = append $wrong "store.addresses names a ZooKeeper, and zookeeper.enabled installs another: set zookeeper.enabled=false, or leave store.addresses out" -}}
{{- end -}}
{{- if not (or .Values.zookeeper.enabled .Values.store.addresses) -}}
{{- $wrong = append $wrong "there is no coordination store: give the HOST:PORT of each server in store.addresses, or set zookeeper.enabled=true" -}}
{{- end -}}
{{- if and .Values.store.open .Values.store.secret.name -}}
{{- $wrong = append $wrong "store.open wants no secret, and store.secret.name gives one: leave one of them out" -}}
{{- end -}}
{{- if and .Release.IsUpgrade (eq (include "rekindle.storeWasOpen" .) "true") -}}
{{- $wrong = append $wrong "the store of this release has been open: set store.open=true to leave it so, or close it, which needs more than a value (docs/install.md, \"From an open store to one with a secret\")" -}}
{{- end -}}
{{- if and (include "rekindle.tls" .) .Values.store.addresses (not .Values.store.authority.secret) -}}
{{- $wrong = append $wrong "the servers in store.addresses are reached by TLS: name the Secret with the authorities of their certificates in store.authority.secret, or ask for plain text with store.plaintext=true" -}}
{{- end -}}
{{- if and .Values.store.authority.secret (or .Values.zookeeper.enabled (not (include "rekindle.tls" .))) -}}
{{- $wrong = append $wrong "store.authority.secret is for the TLS of an existing ZooKeeper: set zookeeper.enabled=false without store.open and store.plaintext, or leave it out" -}}
{{- end -}}
{{- $tls := .Values.zookeeper.tls -}}
{{- if and $tls.certManager $tls.secret -}}
{{- $wrong = append $wrong "zookeeper.tls.certManager and zookeeper.tls.secret both give the servers a certificate: leave one of them out" -}}
{{- end -}}
{{- if and $tls.issuerRef (not $tls.certManager) -}}
{{- $wrong = append $wrong "zookeeper.tls.issuerRef is for cert-manager: set zookeeper.tls.certManager=true, or leave it out" -}}
{{- end -}}
{{- if and (or $tls.certManager $tls.secret $tls.plaintextPort) (not (and .Values.zookeeper.enabled (include "rekindle.tls" .))) -}}
{{- $wrong = append $wrong "zookeeper.tls is of the chart's own ZooKeeper with TLS: set zookeeper.enabled=true without store.open and store.plaintext, or leave certManager, secret and plaintextPort out" -}}
{{- end -}}
{{- if and .Release.IsUpgrade (eq (include "rekindle.storeWasPlain" .) "true") -}}
{{- $wrong = append $wrong "the store of this release has been without TLS: set zookeeper.tls.plaintextPort=true until all drivers have been started again, or store.plaintext=true to leave it so (docs/install.md, \"From plain text to TLS\")" -}}
{{- end -}}
{{- if and .Release.IsUpgrade (eq (include "rekindle.serversWerePlain" .) "true") -}}
{{- $wrong = append $wrong "the servers of this release speak to each other in plain text, and cannot change that one by one: set zookeeper.tls.betweenServers=false, or stop them for the upgrade (docs/install.md, \"From plain text to TLS\")" -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}

{{/* Whether the release had no secret, and nobody has said yet what is to be. */}}
{{- define "rekindle.storeWasOpen" -}}
{{- if not (or .Values.store.open .Values.store.secret.name (lookup "v1" "Secret" .Release.Namespace "rekindle-store")) -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace "rekindle-operator" -}}
{{- $arguments := (first .spec.template.spec.containers).args -}}
{{- if not (has "--store-secret-file=/run/secrets/rekindle/store/secret" $arguments) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Whether drivers that run may know port 2181 alone, and it would be closed. */}}
{{- define "rekindle.storeWasPlain" -}}
{{- if and (include "rekindle.tls" .) .Values.zookeeper.enabled (not .Values.zookeeper.tls.plaintextPort) -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace "rekindle-operator" -}}
{{- if not (regexMatch "--(issue-store-certificate|store-ca-file)" (join " " (first .spec.template.spec.containers).args)) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Whether servers run that would not understand one that has been replaced. */}}
{{- define "rekindle.serversWerePlain" -}}
{{- if and (include "rekindle.tls" .) .Values.zookeeper.enabled .Values.zookeeper.tls.betweenServers (gt (int .Values.zookeeper.replicas) 1) -}}
{{- $servers := lookup "apps/v1" "StatefulSet" .Release.Namespace "rekindle-zookeeper" -}}
{{- $files := lookup "v1" "ConfigMap" .Release.Namespace "rekindle-zookeeper" -}}
{{- if and $servers (gt (int (dig "spec" "replicas" 0 $servers)) 0) (not (contains "sslQuorum=true" (dig "data" "zoo.cfg" "" $files))) -}}
true
{{- end -}}
{{- end -}}
{{- end }}

{{/* What an upgrade to a certificate of one's own, or to another authority, would do to the webhook. */}}
{{- define "rekindle.trustFaults" -}}
{{- $wrong := list -}}
{{- $ours := .Values.webhook.certificates -}}
{{- if and .Release.IsUpgrade .Values.webhook.enabled $ours.secret -}}
{{- with lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "rekindle" -}}
{{- $before := dig "clientConfig" "caBundle" "" (first .webhooks) | b64dec -}}
{{- if eq (include "rekindle.trustEnds" (dict "before" $before "after" $ours.authority)) "true" -}}
{{- $wrong = append $wrong "webhook.certificates.authority has no certificate of the present caBundle, which the webhook's pods need until each has been replaced: put the present ones into the file as well, and leave them out in the next upgrade (docs/install.md, \"To a certificate of your own\")" -}}
{{- end -}}
{{- if not (lookup "v1" "Secret" $.Release.Namespace $ours.secret) -}}
{{- $wrong = append $wrong (printf "webhook.certificates.secret is %s, and there is no such Secret in namespace %s, so no new pod of the webhook would start: make it first" $ours.secret $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}

{{/* Whether none of the certificates in one text in PEM ("before") is in another ("after"). */}}
{{- define "rekindle.trustEnds" -}}
{{- $before := regexFindAll "-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----" .before -1 -}}
{{- $after := regexReplaceAll "\\s" .after "" -}}
{{- $kept := list -}}
{{- range $before -}}
{{- if contains (regexReplaceAll "\\s" . "") $after -}}
{{- $kept = append $kept . -}}
{{- end -}}
{{- end -}}
{{- and $before (not $kept) | not | not -}}
{{- end }}

{{- define "rekindle.classFaults" -}}
{{- $wrong := list -}}
{{- if and .Values.recoveryClass.spec (not .Values.recoveryClass.create) -}}
{{- $wrong = append $wrong "recoveryClass.spec is of a class that recoveryClass.create=false does not make: leave it out, or set recoveryClass.create=true" -}}
{{- end -}}
{{- $class := ternary .Values.recoveryClass.spec dict .Values.recoveryClass.create -}}
{{- $rights := dict
      "ProvisioningRequest" (list "provisioningRequest" .Values.provisioning.provisioningRequest)
      "Karpenter" (list "karpenter" .Values.provisioning.karpenter)
      "ClusterAPI" (list "clusterAPI" .Values.provisioning.clusterAPI) -}}
{{- range $provider := $class.provisioning -}}
{{- $right := index $rights ($provider.provider | default "") -}}
{{- if and $right (not (index $right 1)) -}}
{{- $wrong = append $wrong (printf "recoveryClass.spec.provisioning has the provider %s, which the operator may not use: set provisioning.%s=true" $provider.provider (index $right 0)) -}}
{{- end -}}
{{- end -}}
{{- $mode := dig "fencing" "mode" "None" $class -}}
{{- if and (eq $mode "OutOfServiceTaint") (not .Values.fencing.outOfServiceTaint) -}}
{{- $wrong = append $wrong "recoveryClass.spec.fencing.mode is OutOfServiceTaint, which the operator may not do: set fencing.outOfServiceTaint=true" -}}
{{- end -}}
{{- if and (eq $mode "DeleteNode") (not .Values.fencing.deleteNode) -}}
{{- $wrong = append $wrong "recoveryClass.spec.fencing.mode is DeleteNode, which the operator may not do: set fencing.deleteNode=true" -}}
{{- end -}}
{{- range $certainty := dig "fencing" "certainty" list $class -}}
{{- $right := dict "NodeClaimGone" "nodeClaimGone" "MachineGone" "machineGone" "SelfNodeRemediation" "selfNodeRemediation" | dig $certainty "" -}}
{{- if and $right (not (index $.Values.fencing.certainty $right)) -}}
{{- $wrong = append $wrong (printf "recoveryClass.spec.fencing.certainty has %s, which the operator may not read: set fencing.certainty.%s=true" $certainty $right) -}}
{{- end -}}
{{- end -}}
{{- range $name, $effect := dig "taints" dict $class -}}
{{- if and (ne $effect "None") (not $.Values.taints) -}}
{{- $wrong = append $wrong (printf "recoveryClass.spec.taints.%s is %s, but the operator may not taint nodes: set taints=true" $name $effect) -}}
{{- end -}}
{{- end -}}
{{- if and (dig "sidecar" "store" "secretRef" dict $class) (not (include "rekindle.storeSecret" .)) -}}
{{- $wrong = append $wrong "recoveryClass.spec.sidecar.store.secretRef gives drivers a secret that the operator has not: set store.secret.name, or leave store.open out" -}}
{{- end -}}
{{- if and (dig "nodeDeletion" "enabled" false $class) (not .Values.nodeDeletion) -}}
{{- $wrong = append $wrong "recoveryClass.spec.nodeDeletion is enabled, but the operator may not delete nodes: set nodeDeletion=true" -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}

{{- define "rekindle.otherFaults" -}}
{{- $wrong := list -}}
{{- if and .Values.priorityClass.create (not .Values.priorityClass.name) -}}
{{- $wrong = append $wrong "priorityClass.create needs priorityClass.name: give a name, or set priorityClass.create=false" -}}
{{- end -}}
{{- if and .Values.webhook.certificates.issuerRef (not .Values.webhook.certificates.certManager) -}}
{{- $wrong = append $wrong "webhook.certificates.issuerRef is for cert-manager: set webhook.certificates.certManager=true, or leave it out" -}}
{{- end -}}
{{- if and .Values.webhook.certificates.certManager .Values.webhook.certificates.secret -}}
{{- $wrong = append $wrong "webhook.certificates.certManager and webhook.certificates.secret both give the webhook a certificate: leave one of them out" -}}
{{- end -}}
{{- if and .Values.webhook.certificates.secret (not .Values.webhook.certificates.authority) -}}
{{- $wrong = append $wrong "webhook.certificates.secret needs webhook.certificates.authority, by which the API server trusts it: --set-file webhook.certificates.authority=ca.crt" -}}
{{- end -}}
{{- if and .Values.webhook.certificates.authority (not .Values.webhook.certificates.secret) -}}
{{- $wrong = append $wrong "webhook.certificates.authority is for a certificate of your own: set webhook.certificates.secret, or leave it out" -}}
{{- end -}}
{{- if contains "PRIVATE KEY-----" .Values.webhook.certificates.authority -}}
{{- $wrong = append $wrong "webhook.certificates.authority holds a private key, and everybody may read caBundle, where it would go: give a file with the authority's certificates alone, with --set-file webhook.certificates.authority=ca.crt" -}}
{{- else if not (regexMatch "^$|(^|\n)-----BEGIN CERTIFICATE-----\\s[^-]+-----END CERTIFICATE-----" .Values.webhook.certificates.authority) -}}
{{- $wrong = append $wrong "webhook.certificates.authority holds no certificate: give a file with the authority's certificates, each from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----, with --set-file webhook.certificates.authority=ca.crt" -}}
{{- end -}}
{{- if and .Values.webhook.certificates.secret (not .Values.webhook.enabled) -}}
{{- $wrong = append $wrong "webhook.certificates.secret is of no use without the webhook: set webhook.enabled=true, or leave it out" -}}
{{- end -}}
{{- if and .Values.webhook.certificates.certManager (not .Values.webhook.enabled) -}}
{{- $wrong = append $wrong "webhook.certificates.certManager=true is of no use without the webhook: set webhook.enabled=true, or leave it out" -}}
{{- end -}}
{{- if not (or .Values.zookeeper.image.tag .Values.zookeeper.image.digest) -}}
{{- $wrong = append $wrong "zookeeper.image has no tag: give zookeeper.image.tag or zookeeper.image.digest" -}}
{{- end -}}
{{- $added := dict
      "operator" (list "--kubeconfig" "--lease-seconds" "--log" "--request-look-seconds" "--store-session-seconds" "--watch-silence-seconds")
      "webhook" (list "--kubeconfig" "--log" "--sidecar-image" "--watch-silence-seconds") -}}
{{- range $part, $known := $added -}}
{{- range $ordinal, $argument := (index $.Values $part).extraArguments -}}
{{- $option := splitList "=" $argument | first -}}
{{- if and (eq $part "operator") (eq $option "--sidecar-image") -}}
{{- $wrong = append $wrong (printf "operator.extraArguments[%d] is %q, which the webhook is told: give it in webhook.extraArguments" $ordinal $argument) -}}
{{- else if and (hasPrefix "--" $option) (not (has $option $known)) -}}
{{- $wrong = append $wrong (printf "%s.extraArguments[%d] is %q: only %s and %s can be added; all else has a value of its own, or is no option" $part $ordinal $argument (initial $known | join ", ") (last $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.console.allowedFrom (not .Values.console.enabled) -}}
{{- $wrong = append $wrong "console.allowedFrom is of no use without the console: set console.enabled=true, or leave it out" -}}
{{- end -}}
{{- if and .Values.provisioning.clusterAPISecrets (not .Values.provisioning.clusterAPI) -}}
{{- $wrong = append $wrong "provisioning.clusterAPISecrets is of no use without Cluster API: set provisioning.clusterAPI=true, or leave it out" -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}

{{/* Texts of a form: (list place value pattern example) each. */}}
{{- define "rekindle.textFaults" -}}
{{- $quantity := "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$" -}}
{{- $duration := "^([0-9]+(h|m|s))+$" -}}
{{- $digest := "^(sha256:[a-f0-9]{64})?$" -}}
{{- $name := "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$" -}}
{{- $label := "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$" -}}
{{- $tag := "^([A-Za-z0-9_][-A-Za-z0-9_.]*)?$" -}}
{{- $certificates := .Values.webhook.certificates -}}
{{- $texts := list
      (list "image.digest" .Values.image.digest $digest "sha256: and 64 digits from 0 to f")
      (list "zookeeper.image.digest" .Values.zookeeper.image.digest $digest "sha256: and 64 digits from 0 to f")
      (list "zookeeper.storage.size" .Values.zookeeper.storage.size $quantity "4Gi")
      (list "zookeeper.image.tag" .Values.zookeeper.image.tag $tag "4.3.0")
      (list "image.tag" .Values.image.tag $tag "0.1.0")
      (list "zookeeper.sparkHome" .Values.zookeeper.sparkHome "^/" "/opt/spark")
      (list "priorityClass.name" .Values.priorityClass.name $name "rekindle")
      (list "store.secret.name" .Values.store.secret.name $name "rekindle-store")
      (list "store.authority.secret" .Values.store.authority.secret $name "zookeeper-authority")
      (list "zookeeper.tls.secret" .Values.zookeeper.tls.secret $name "zookeeper-tls")
      (list "zookeeper.tls.duration" .Values.zookeeper.tls.duration $duration "2160h")
      (list "zookeeper.tls.renewBefore" .Values.zookeeper.tls.renewBefore $duration "720h")
      (list "webhook.certificates.duration" $certificates.duration $duration "2160h")
      (list "webhook.certificates.renewBefore" $certificates.renewBefore $duration "720h")
      (list "monitoring.serviceMonitor.interval" .Values.monitoring.serviceMonitor.interval $duration "15s")
      (list "monitoring.prometheusRule.runbookUrl" .Values.monitoring.prometheusRule.runbookUrl "^(https?://.+)?$" "https://runbooks.example.com/rekindle#") -}}
{{- range $ordinal, $address := .Values.store.addresses -}}
{{- $texts = append $texts (list (printf "store.addresses[%d]" $ordinal) $address "^([A-Za-z0-9._-]+|\\[[0-9a-fA-F:]+\\]):[0-9]{1,5}$" "zookeeper-0.zookeeper.data.svc:2281") -}}
{{- end -}}
{{- range $part := list "operator" "webhook" -}}
{{- range $ordinal, $argument := (index $.Values $part).extraArguments -}}
{{- $texts = append $texts (list (printf "%s.extraArguments[%d]" $part $ordinal) $argument "^--[a-z]" "--NAME=VALUE") -}}
{{- end -}}
{{- end -}}
{{- range $ordinal, $key := .Values.failureDomainKeys -}}
{{- $texts = append $texts (list (printf "failureDomainKeys[%d]" $ordinal) $key $label "topology.kubernetes.io/zone") -}}
{{- end -}}
{{- range $ordinal, $namespace := .Values.webhook.excludedNamespaces -}}
{{- $texts = append $texts (list (printf "webhook.excludedNamespaces[%d]" $ordinal) $namespace "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" "istio-system") -}}
{{- end -}}
{{- range $part, $resources := dict "operator" .Values.operator.resources "webhook" .Values.webhook.resources "zookeeper" .Values.zookeeper.resources -}}
{{- range $kind, $amounts := omit $resources "claims" -}}
{{- range $resource, $amount := $amounts -}}
{{- $texts = append $texts (list (printf "%s.resources.%s.%s" $part $kind $resource) $amount $quantity "500m or 256Mi") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $wrong := list -}}
{{- range $texts -}}
{{- if not (regexMatch (index . 2) (toString (index . 1))) -}}
{{- $wrong = append $wrong (printf "%s is %q: write it like %s" (index . 0) (toString (index . 1)) (index . 3)) -}}
{{- end -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end }}
