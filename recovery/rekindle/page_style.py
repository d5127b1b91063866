"""The style sheet that all our pages share: light and dark by preference, and for paper.

Orange and teal differ in lightness as well as in hue, so they stay apart for every eye. The report
and the console add what only they draw.
"""

VARIABLES = """
:root {
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d2327; --soft: #646e73; --faint: #98a1a4;
  --rule: #e6e4de; --grid: #efede7; --available: #7fc4ae; --available-deep: #17795e;
  --unavailable: #e0552b; --lag: #c9bfae; --nodes: #dbe6ef; --nodes-line: #5f86a6;
  --plan: #3d4f9f; --kill: #b3261e; --returned: #8fa9bd;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1b2024; --ink: #e9e7e2; --soft: #a2abaf; --faint: #737d82;
    --rule: #2c3338; --grid: #242a2e; --available: #2c7a66; --available-deep: #7fd0b8;
    --unavailable: #f2743f; --lag: #5a564e; --nodes: #243443; --nodes-line: #7aa5c8;
    --plan: #98a7f2; --kill: #ff7a6e; --returned: #54708a;
  }
}
""".strip()

# Text, headings, figures at a glance, and the frame around a picture.
PAGE = """
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 var(--font);
  font-variant-numeric: tabular-nums; -webkit-font-smoothing: antialiased;
}
main { max-width: 1200px; margin: 0 auto; padding: 56px 32px 80px; }
.eyebrow {
  margin: 0 0 14px; font-size: 13px; font-weight: 650; letter-spacing: .04em;
  color: var(--unavailable);
}
.eyebrow span { color: var(--soft); font-weight: 400; margin-left: 6px; }
h1 {
  margin: 0; max-width: 22em; font-size: clamp(26px, 3.6vw, 40px); line-height: 1.16;
  font-weight: 680; letter-spacing: -.022em; text-wrap: balance;
}
.story { max-width: 62em; margin: 18px 0 0; font-size: 17px; color: var(--soft); }
h2 { margin: 56px 0 14px; font-size: 20px; font-weight: 650; letter-spacing: -.01em; }
.tiles {
  display: grid; grid-template-columns: repeat(4, 1fr); gap: 1px;
  margin-top: 36px; border: 1px solid var(--rule); border-radius: 12px; overflow: hidden;
  background: var(--rule);
}
.tile { padding: 18px 22px 16px; background: var(--card); }
.tile b { display: block; font-size: 30px; line-height: 1.2; letter-spacing: -.02em; }
.tile span { display: block; font-size: 14px; }
.tile small { display: block; min-height: 1.5em; font-size: 13px; color: var(--soft); }
.tile.good b { color: var(--available-deep); }
.tile.bad b { color: var(--kill); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 0 0 12px; font-size: 13.5px; }
.legend span { display: inline-flex; align-items: center; gap: 8px; color: var(--soft); }
.picture {
  padding: 20px 20px 10px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 12px; overflow-x: auto;
}
svg { display: block; width: 100%; min-width: 820px; height: auto; }
""".strip()

TABLES = """
.scroll { overflow-x: auto; }
.few table { width: auto; }
table { width: 100%; border-collapse: collapse; font-size: 14.5px; }
th, td { padding: 8px 14px; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
th { font-weight: 400; font-size: 13px; color: var(--soft); }
td { border-top: 1px solid var(--rule); }
.words { text-align: left; white-space: normal; }
dl {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(250px, 1fr)); gap: 16px 32px;
  margin: 0;
}
dt { font-size: 13px; color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 900px) { .tiles { grid-template-columns: repeat(2, 1fr); } }
@media (max-width: 640px) { main { padding: 32px 16px 56px; } .picture { padding: 14px 12px; } }
@media print { .picture, .tiles { break-inside: avoid; } main { padding: 0; } }
""".strip()
