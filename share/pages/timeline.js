// Draws the timeline of a training step: two canvases with one view, what was measured and what was predicted. It needs the elements
// that trace_html() makes (src/loom/train/trace_page.cc), and colours of page.css. trace.ops has, for each kind of instruction, its
// words and the number of its colour.
"use strict";
(() => {
  const trace = JSON.parse(document.getElementById("trace").textContent);
  const ranks = trace.ranks.filter(rank => rank.measured.length > 0);
  const LABEL = 56, AXIS = 18, LANE = 13, ROW = ranks.length <= 8 ? 24 : ranks.length <= 32 ? 15 : 11;
  const panels = [
    {canvas: document.getElementById("measured"), times: rank => rank.measured, begin: rank => rank.begin_us},
    {canvas: document.getElementById("predicted"), times: rank => trace.stages[rank.stage].predicted, begin: () => 0}];
  const open = new Set();
  let first = 0, last = 1;
  for (const panel of panels)
    for (const rank of ranks)
      for (const [begin, end] of panel.times(rank)) {
        first = Math.min(first, begin + panel.begin(rank));
        last = Math.max(last, end + panel.begin(rank));
      }
  let view = {from: first, to: last};

  const lanes = rank => [...new Set(trace.stages[rank.stage].instructions.map(i => i[1]))].sort((a, b) => a - b);
  // A row a rank, or a row a lane where it is open.
  function rows() {
    const list = [];
    let y = AXIS;
    for (const rank of ranks)
      for (const lane of open.has(rank.rank) ? lanes(rank) : [-1]) {
        const height = lane < 0 ? ROW : LANE;
        list.push({rank, lane, y, height});
        y += height + 1;
      }
    return {list, height: y + 2};
  }
  // Where an instruction lies in a row: computing above, the rest below where both share it.
  function band(row, lane) {
    if (row.lane >= 0) return lane === row.lane ? [row.y, row.height] : null;
    const upper = Math.round(row.height * 0.6);
    return lane === 0 ? [row.y, upper] : [row.y + upper, row.height - upper];
  }
  function step() {
    const rough = (view.to - view.from) / 8, power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  }

  const shade = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(panel) {
    const {canvas} = panel, {list, height} = rows(), ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth || 840;
    canvas.style.height = height + "px";
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "10px sans-serif";
    const scale = (width - LABEL) / (view.to - view.from), x = us => LABEL + (us - view.from) * scale;
    const colours = trace.ops.map(([, index]) => shade(`--c${index}`)), soft = shade("--soft");
    c.fillStyle = soft;
    c.strokeStyle = shade("--line");
    for (let us = Math.ceil(view.from / step()) * step(); us < view.to; us += step()) {
      c.fillText((us / 1000).toPrecision(5) * 1 + " ms", x(us) + 2, 10);
      c.beginPath(); c.moveTo(x(us), 0); c.lineTo(x(us), height); c.stroke();
    }
    for (const row of list) {
      const {rank} = row, instructions = trace.stages[rank.stage].instructions, begin = panel.begin(rank);
      panel.times(rank).forEach(([from, to], index) => {
        const [op, lane, , microbatch] = instructions[index], place = band(row, lane);
        if (!place || to + begin < view.from || from + begin > view.to) return;
        const left = Math.max(LABEL, x(from + begin)), right = Math.min(width, x(to + begin));
        c.fillStyle = colours[op];
        c.fillRect(left, place[0], Math.max(0.4, right - left), place[1]);
        if (microbatch < 0 || right - left < 14 || place[1] < 9) return;
        c.fillStyle = shade("--ground");
        c.fillText(microbatch, left + 2, place[0] + place[1] / 2 + 4);
      });
      c.fillStyle = soft;
      const opened = row.lane >= 0;
      if (!opened || row.lane === 0) c.fillText((opened ? "- " : "+ ") + rank.rank, 0, row.y + row.height - 2);
      if (opened) c.fillText("lane " + row.lane, 22, row.y + row.height - 2);
    }
  }
  const redraw = () => panels.forEach(draw);

  function under(panel, event) {
    const row = rows().list.find(r => event.offsetY >= r.y && event.offsetY < r.y + r.height);
    if (!row || event.offsetX < LABEL) return {row};
    const us = view.from + (event.offsetX - LABEL) / (panel.canvas.clientWidth - LABEL) * (view.to - view.from);
    const instructions = trace.stages[row.rank.stage].instructions, begin = panel.begin(row.rank);
    let best = null;
    panel.times(row.rank).forEach(([from, to], index) => {
      const place = band(row, instructions[index][1]);
      if (!place || event.offsetY < place[0] || event.offsetY > place[0] + place[1]) return;
      if (us < from + begin || us > to + begin) return;
      if (!best || to - from < best.to - best.from) best = {from, to, index, begin};
    });
    return {row, best};
  }
  function tell(panel, event) {
    const {row, best} = under(panel, event);
    let text = "";
    if (best) {
      const [op, lane, unit, microbatch, step] = trace.stages[row.rank.stage].instructions[best.index];
      text = `rank ${row.rank.rank}, lane ${lane}: ${trace.ops[op][0]}` + (unit < 0 ? "" : ` of unit ${unit}`) +
        (microbatch < 0 ? "" : `, microbatch ${microbatch}`) + (step < 0 ? "" : `, from step ${step} on`) +
        `: ${((best.from + best.begin) / 1000).toFixed(3)} to ${((best.to + best.begin) / 1000).toFixed(3)} ms, ` +
        `${(best.to - best.from).toFixed(0)} us`;
    }
    document.getElementById("hover").textContent = text;
  }

  for (const panel of panels) {
    const {canvas} = panel;
    let held = null, moved = false;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const part = Math.max(0, (event.offsetX - LABEL) / (canvas.clientWidth - LABEL)), span = view.to - view.from;
      const wanted = Math.min(last - first, Math.max(1, span * (event.deltaY > 0 ? 1.25 : 0.8)));
      const from = view.from + (span - wanted) * part;
      view = {from, to: from + wanted};
      redraw();
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => { held = {x: event.offsetX, view}; moved = false; });
    canvas.addEventListener("pointermove", event => {
      if (!held) return tell(panel, event);
      const us = (event.offsetX - held.x) / (canvas.clientWidth - LABEL) * (held.view.to - held.view.from);
      moved = moved || Math.abs(event.offsetX - held.x) > 3;
      view = {from: held.view.from - us, to: held.view.to - us};
      redraw();
    });
    canvas.addEventListener("pointerleave", () => { held = null; });
    canvas.addEventListener("pointerup", event => {
      held = null;
      const {row} = under(panel, event);
      if (moved || !row || event.offsetX >= LABEL) return;
      if (!open.delete(row.rank.rank)) open.add(row.rank.rank);
      redraw();
    });
  }
  document.getElementById("all").onclick = () => { ranks.forEach(rank => open.add(rank.rank)); redraw(); };
  document.getElementById("none").onclick = () => { open.clear(); redraw(); };
  document.getElementById("whole").onclick = () => { view = {from: first, to: last}; redraw(); };
  window.addEventListener("resize", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  if (ranks.length === 1) open.add(ranks[0].rank);
  redraw();
})();
