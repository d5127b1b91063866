"""The schema of values for the RecoveryClass `default`, as its definition has it.

Helm checks values before it makes anything; what only the API server refuses is refused half way
through an installation. Rules that compare fields are left to the chart's own checks.
"""

import re
from typing import Any

import yaml
from chart_commands import ROOT

DEFINITION = ROOT / "crds" / "recoveryclasses.yaml"
# Words that mean the same in both.
SAME = (
    *("type", "enum", "required", "minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
)
MATCHES = re.compile(r"^self\.matches\('(?P<pattern>.*)'\)$")
RULES = "x-kubernetes-validations"


def class_specification() -> dict[str, Any]:
    """What the definition says of `spec`."""
    definition = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]
    return found


def class_schema(known: dict[str, Any]) -> dict[str, Any]:
    """A part of the definition in the words of JSON schema; fields that it has not are refused."""
    made = {word: known[word] for word in SAME if word in known}
    if "x-kubernetes-int-or-string" in known:
        made["type"] = ["integer", "string"]
    if known.get("x-kubernetes-list-type") == "set":
        made["uniqueItems"] = True
    patterns = [found["pattern"] for rule in known.get(RULES, ()) if (found := _matches(rule))]
    if patterns:
        # as it stands in a text of CEL
        made["pattern"] = patterns[0].replace("\\\\", "\\")
    if "properties" in known:
        made["additionalProperties"] = False
        made["properties"] = {
            name: class_schema(part) for name, part in known["properties"].items()
        }
    elif "additionalProperties" in known:
        made["additionalProperties"] = class_schema(known["additionalProperties"])
    if "items" in known:
        made["items"] = class_schema(known["items"])
    return made


def rules(known: dict[str, Any]) -> set[str]:
    """Messages of all rules that no pattern stands for."""
    found = {rule["message"] for rule in known.get(RULES, ()) if not _matches(rule)}
    for part in (*known.get("properties", {}).values(), known.get("items")):
        if part:
            found |= rules(part)
    return found


def _matches(rule: dict[str, Any]) -> re.Match[str] | None:
    return MATCHES.match(rule["rule"])
