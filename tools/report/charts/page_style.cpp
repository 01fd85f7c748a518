#include "tools/report/charts/page_style.h"

namespace slackline::report {

namespace {

// Text that may be a single long word (a path, a key) breaks anywhere. On screens wide things
// scroll inside their own box, so that the page never does; on paper nothing can scroll, so tables
// share out the width and charts shrink to it.
constexpr char kStyle[] = R"(<style>
:root { --paper: #ffffff; --ink: #1b1f24; --soft: #57606a; --rule: #d0d7de; --remark: #fff3cd;
  --c0: #2f6fde; --c1: #e07b00; --c2: #1a9a6c; --c3: #a04bd0; --c4: #c2343f; --c5: #0e93a8;
  --c6: #8d6e3a; --c7: #9aa3ad; --c8: #5f6b1f; --critical: #c4001d; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #12161b; --ink: #e3e8ee; --soft: #9aa6b2; --rule: #333c46; --remark: #463a10;
    --c0: #6ea3ff; --c1: #ffa845; --c2: #4cc99a; --c3: #c98cf0; --c4: #f07680; --c5: #4fc3d6;
    --c6: #c9a76a; --c7: #77818c; --c8: #b9c46a; --critical: #ff5c70; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: anywhere; }
main { max-width: 1080px; margin: 0 auto; padding: 12px 16px 48px; }
h1 { font-size: 1.5rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .6rem; border-top: 2px solid var(--rule); }
h3 { font-size: 1.08rem; margin: 1.6rem 0 .4rem; }
h4 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { max-width: 70ch; color: var(--soft); }
p.notice { color: var(--ink); background: var(--remark); padding: .5rem .7rem; border-radius: 4px;
  max-width: none; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr));
  gap: 8px 24px; align-items: start; }
.charts > * { min-width: 0; }
figure { margin: .6rem 0; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
.plot > svg { display: block; width: 100%; height: auto; }
.gantt > .plot { overflow-x: auto; }
.gantt > .plot > svg { min-width: 700px; }
svg.patterns { position: absolute; }
svg text { fill: var(--ink); font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; }
svg .label, svg .lane { fill: var(--soft); }
svg .bar-label { font-size: 9px; fill: var(--paper); pointer-events: none; }
svg .lane { font-size: 10px; }
.grid { stroke: var(--rule); stroke-width: .7; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.c0 { fill: var(--c0); stroke: var(--c0); } .c1 { fill: var(--c1); stroke: var(--c1); }
.c2 { fill: var(--c2); stroke: var(--c2); } .c3 { fill: var(--c3); stroke: var(--c3); }
.c4 { fill: var(--c4); stroke: var(--c4); } .c5 { fill: var(--c5); stroke: var(--c5); }
.c6 { fill: var(--c6); stroke: var(--c6); } .c7 { fill: var(--c7); stroke: var(--c7); }
.c8 { fill: var(--c8); stroke: var(--c8); }
.line.c0, .line.c1, .line.c2, .line.c3, .line.c4, .line.c5, .line.c6, .line.c7 { fill: none; }
.part, .mark, .point, .raw, .sent { stroke: none; }
.bar.forward { fill: var(--c0); } .bar.backward { fill: var(--c2); } .bar.weight { fill: var(--c5); }
.bar.update { fill: var(--c6); } .bar.activations { fill: var(--c3); }
.bar.gradients { fill: var(--c1); } .bar.data { fill: var(--c7); } .bar.waiting { fill: var(--rule); }
.bar.critical, .bar.key-critical { stroke: var(--critical); stroke-width: 1.8; }
.bar.key-critical { fill: none; }
.hatch { fill: url(#hatch); pointer-events: none; }
.hatch-line { fill: var(--ink); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 14px; margin: .3rem 0 0;
  padding: 0; font-size: .85rem; color: var(--soft); }
.legend li { min-width: 0; }
.key { width: 12px; height: 12px; margin-right: 5px; vertical-align: -1px; }
.scroll { overflow-x: auto; max-width: 100%; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .86rem; }
th, td { text-align: left; vertical-align: top; padding: 3px 10px 3px 0;
  border-bottom: 1px solid var(--rule); max-width: 36em; overflow-wrap: break-word; }
th { color: var(--soft); font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
@page { size: A4; margin: 10mm; }
@media print {
  :root { --paper: #ffffff; --ink: #000000; --soft: #333333; --rule: #bbbbbb; --remark: #f3f3f3;
    --c0: #2f6fde; --c1: #e07b00; --c2: #1a9a6c; --c3: #a04bd0; --c4: #c2343f; --c5: #0e93a8;
    --c6: #8d6e3a; --c7: #9aa3ad; --c8: #5f6b1f; --critical: #c4001d; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  .scroll, .gantt > .plot { overflow: visible; }
  .gantt > .plot > svg { min-width: 0; }
  .charts { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  table { table-layout: fixed; width: 100%; font-size: 7.5pt; }
  th, td { overflow-wrap: anywhere; white-space: normal; max-width: none; padding-right: 5px; }
  td.number { white-space: normal; }
  figure, tr, p.notice { break-inside: avoid; }
  h1, h2, h3, h4, figcaption { break-after: avoid; }
  svg rect, .key { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
</style>)";

}  // namespace

Html page_style() {
  return Html::literal(kStyle);
}

}  // namespace slackline::report
