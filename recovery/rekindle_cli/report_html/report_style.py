"""The style sheet of the report: the one that all our pages share, and the marks of its pictures.

`svg_picture` takes variables and marks alone: its file has no page around it.
"""

from rekindle.page_style import PAGE, TABLES, VARIABLES

# What is drawn, below an `svg`.
MARKS = """
svg text { font-size: 12px; fill: var(--ink); }
svg .head { fill: var(--faint); font-size: 11.5px; }
svg .tick { fill: var(--soft); font-size: 11.5px; text-anchor: middle; }
svg .grid { stroke: var(--grid); }
svg .rule { stroke: var(--grid); }
svg .name { font-size: 13px; }
svg .priority { fill: var(--plan); }
svg .priority-value { font-size: 12px; font-weight: 650; text-anchor: middle; }
svg .available { fill: var(--available); }
svg .unavailable { fill: var(--unavailable); }
svg .lag { fill: var(--lag); }
svg .sum { font-size: 13px; font-weight: 650; text-anchor: end; }
svg .sum.none { font-weight: 400; fill: var(--available-deep); }
svg .sum.never { fill: var(--kill); }
svg .planned { fill: var(--card); stroke: var(--plan); stroke-width: 2; }
svg .plan circle { fill: var(--plan); }
svg .plan text { fill: var(--card); font-size: 10.5px; font-weight: 700; text-anchor: middle; }
svg .nodes { fill: var(--nodes); }
svg .nodes-line { fill: none; stroke: var(--nodes-line); stroke-width: 1.6; }
svg .count { font-size: 11px; fill: var(--nodes-line); text-anchor: middle; font-weight: 650; }
svg .node { font-size: 11px; fill: var(--soft); text-anchor: middle; }
svg .returned { stroke: var(--returned); stroke-dasharray: 2 4; stroke-width: 1.2; }
svg .kill { stroke: var(--kill); stroke-width: 1.6; }
svg .kill-label { font-size: 11.5px; font-weight: 650; fill: var(--kill); text-anchor: end; }
""".strip()

# What charts draw that have no time to show: lines and bars in one colour for each name.
CHART_MARKS = """
svg text { font-size: 12px; fill: var(--ink); }
svg .tick { fill: var(--soft); font-size: 11.5px; }
svg .grid { stroke: var(--grid); }
svg .line { fill: none; stroke-width: 2; }
svg .second { stroke-dasharray: 5 4; }
svg .name { font-size: 13px; }
svg .c0 { stroke: var(--plan); fill: var(--plan); }
svg .c1 { stroke: var(--available-deep); fill: var(--available-deep); }
svg .c2 { stroke: var(--unavailable); fill: var(--unavailable); }
svg .c3 { stroke: var(--faint); fill: var(--faint); }
svg .line.c0, svg .line.c1, svg .line.c2, svg .line.c3 { fill: none; }
svg .hollow { fill: var(--card); stroke-width: 1.6; }
""".strip()

# What a mark means, beside the picture.
_KEYS = """
.key { display: inline-block; width: 20px; height: 9px; border-radius: 2px; }
.key.available { background: var(--available); }
.key.unavailable { background: var(--unavailable); }
.key.lag { background: var(--lag); clip-path: polygon(0 100%, 100% 0, 100% 100%); height: 12px; }
.key.planned {
  width: 9px; border-radius: 50%; background: var(--card); border: 2px solid var(--plan);
}
.key.returned { width: 0; height: 14px; border-left: 2px dashed var(--returned); border-radius: 0; }
.key.kill { width: 2px; height: 14px; background: var(--kill); border-radius: 0; }
""".strip()

SHEET = "\n".join((VARIABLES, PAGE, _KEYS, MARKS, TABLES))
