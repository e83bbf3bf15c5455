// Draws the charts of a page. Each is described by JSON in <script type="application/json" class="chart">:
//
//   {"title": "Loss", "x": AXIS, "y": AXIS, "series": [{"name": "run 1", "points": [[x, y], …]}, …], "mark": y}
//   AXIS: {"label": "step", "unit": "nats", "log": false, "bytes": false}
//
// The script is replaced by a figure: axes with ticks and units, a legend that hides a series at a click, the values at the pointer,
// logarithmic scales at a click, and a range of x by dragging; a double click shows all of it again. "bytes" counts in powers of two.
// A series may have its "colour", a number of the page's colours.
"use strict";
const charts = (() => {
  const LEFT = 58, RIGHT = 14, TOP = 8, BOTTOM = 38, HEIGHT = 250;

  // A number in few characters, with a prefix of the SI, or of powers of two.
  function short(value, bytes = false) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (bytes) {
      const power = Math.max(0, Math.min(4, Math.floor(Math.log2(size) / 10)));
      return +(value / 1024 ** power).toPrecision(3) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][power];
    }
    if (size >= 1e15 || size < 1e-4) return value.toExponential(1);
    const power = size >= 1e4 ? Math.floor(Math.log10(size) / 3) : 0;
    return +(value / 1000 ** power).toPrecision(3) + ["", "k", "M", "G", "T"][power];
  }

  // Round numbers from `low` to `high`, about `count` of them.
  function ticks(low, high, count, log, bytes) {
    if (log) {
      const base = bytes ? 2 : 10, first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
      const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
      const every = Math.max(1, Math.ceil((last - first + 1) / count)), list = [];
      for (let power = first; power <= last; power += every) list.push(base ** power);
      if (list.length >= 3 || bytes) return list;
      const fine = [];
      for (let power = first - 1; power <= last; ++power)
        for (const digit of [1, 2, 5]) fine.push(+(digit * base ** power).toPrecision(6));
      const inside = fine.filter(value => value >= low && value <= high);
      return inside.length >= 2 ? inside : ticks(low, high, count, false, false);
    }
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(digit => digit * power).find(one => one >= rough * 0.7), list = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) list.push(+(i * step).toPrecision(12));
    return list;
  }

  // From values to pixels and back.
  function scale(low, high, begin, end, log) {
    const f = log ? Math.log : value => value, g = log ? Math.exp : value => value, from = f(low), span = f(high) - from || 1;
    return {low, high, to: value => begin + (f(value) - from) / span * (end - begin),
            from: pixel => g(from + (pixel - begin) / (end - begin) * span)};
  }

  function range(values, log) {
    const own = values.filter(value => Number.isFinite(value) && (!log || value > 0));
    if (own.length === 0) return [log ? 1 : 0, log ? 10 : 1];
    let low = Math.min(...own), high = Math.max(...own);
    if (log) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
    if (low === high) return [low - Math.abs(low || 1) / 2, high + Math.abs(high || 1) / 2];
    if (low > 0 && low < 0.4 * high) low = 0;
    return [low, high + 0.04 * (high - low)];
  }

  // That of SVG, which the browser knows.
  function namespace() {
    const template = document.createElement("div");
    template.innerHTML = "<svg></svg>";
    return template.firstChild.namespaceURI;
  }

  function element(name, attributes, parent, text) {
    const svg = ["svg", "line", "text", "path", "circle", "rect", "g"].includes(name);
    const made = svg ? document.createElementNS(namespace(), name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }

  const colour = (one, index) => `var(--c${(one.colour ?? index) % 8})`;
  const titled = axis => axis.label + (axis.unit ? `, ${axis.unit}` : "");

  // The point of a series next to x, of points in ascending order.
  function nearest(points, x) {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle;
      else high = middle;
    }
    return points.length && Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  }

  class Chart {
    constructor(spec, script) {
      this.spec = spec;
      this.log = {x: !!spec.x.log, y: !!spec.y.log};
      this.hidden = new Set();
      this.zoom = null;
      this.figure = element("figure", {class: "chart"});
      const caption = element("figcaption", {}, this.figure);
      element("span", {}, caption, spec.title);
      for (const axis of ["x", "y"]) {
        if (!spec.series.every(one => one.points.every(point => point[axis === "x" ? 0 : 1] > 0))) continue;
        const button = element("button", {"aria-pressed": this.log[axis], title: "logarithmic scale"}, caption, `log ${axis}`);
        button.onclick = () => { this.log[axis] = !this.log[axis]; button.setAttribute("aria-pressed", this.log[axis]); this.draw(); };
      }
      this.svg = element("svg", {role: "img", "aria-label": spec.title}, this.figure);
      this.tip = element("div", {class: "tip", hidden: ""}, this.figure);
      this.addLegend();
      this.addPointer();
      script.replaceWith(this.figure);
      new ResizeObserver(() => this.draw()).observe(this.figure);
      this.draw();
    }

    addLegend() {
      if (this.spec.series.length < 2) return;
      const legend = element("div", {class: "legend"}, this.figure);
      this.spec.series.forEach((one, index) => {
        const entry = element("span", {}, legend);
        element("i", {style: `background:${colour(one, index)}`}, entry);
        entry.appendChild(document.createTextNode(one.name));
        entry.onclick = () => {
          if (!this.hidden.delete(index)) this.hidden.add(index);
          entry.classList.toggle("off", this.hidden.has(index));
          this.draw();
        };
      });
    }

    addPointer() {
      const at = event => (event.clientX - this.svg.getBoundingClientRect().left);
      let from = null;
      this.svg.onpointerdown = event => { from = at(event); };
      this.svg.onpointermove = event => this.point(at(event), from);
      this.svg.onpointerleave = () => { this.tip.hidden = true; this.overlay.replaceChildren(); from = null; };
      this.svg.onpointerup = event => {
        const [low, high] = [from, at(event)].sort((a, b) => a - b).map(pixel => this.x.from(pixel));
        if (from !== null && Math.abs(at(event) - from) > 8) { this.zoom = [low, high]; this.draw(); }
        from = null;
      };
      this.svg.ondblclick = () => { this.zoom = null; this.draw(); };
    }

    shown() {
      return this.spec.series.map((one, index) => ({one, index})).filter(({index}) => !this.hidden.has(index));
    }

    draw() {
      const {spec} = this, width = Math.max(240, this.svg.clientWidth || 420);
      const inside = ([x]) => !this.zoom || (x >= this.zoom[0] && x <= this.zoom[1]);
      const points = this.shown().flatMap(({one}) => one.points.filter(inside));
      const [left, right] = this.zoom || range(points.map(point => point[0]), this.log.x).map((value, end) =>
        this.log.x || end === 0 ? value : Math.max(...points.map(point => point[0]), -Infinity) || value);
      const begin = this.zoom || this.log.x ? left : Math.min(...points.map(point => point[0]), right);
      this.x = scale(begin, Number.isFinite(right) && right > begin ? right : begin + 1, LEFT, width - RIGHT, this.log.x);
      const marked = spec.mark === undefined ? [] : [spec.mark];
      const [low, high] = range(points.map(point => point[1]).concat(marked), this.log.y);
      this.y = scale(low, high, HEIGHT - BOTTOM, TOP, this.log.y);
      this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      this.svg.style.height = HEIGHT + "px";
      this.svg.replaceChildren();
      this.drawAxes(width);
      for (const {one, index} of this.shown().reverse()) this.drawSeries(one, index, inside);
      this.overlay = element("g", {}, this.svg);
    }

    drawAxes(width) {
      const {spec, svg} = this;
      for (const value of ticks(this.y.low, this.y.high, 5, this.log.y, spec.y.bytes)) {
        const y = this.y.to(value);
        element("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y}, svg);
        element("text", {x: LEFT - 6, y: y + 4, "text-anchor": "end"}, svg, short(value, spec.y.bytes));
      }
      for (const value of ticks(this.x.low, this.x.high, Math.max(2, width / 95), this.log.x, spec.x.bytes)) {
        const x = this.x.to(value);
        element("line", {class: "grid", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4}, svg);
        element("text", {x, y: HEIGHT - BOTTOM + 16, "text-anchor": "middle"}, svg, short(value, spec.x.bytes));
      }
      element("text", {x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle"}, svg, titled(spec.x));
      const middle = (TOP + HEIGHT - BOTTOM) / 2;
      element("text", {x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})`}, svg, titled(spec.y));
      if (spec.mark === undefined) return;
      const y = this.y.to(spec.mark);
      element("line", {class: "mark", x1: LEFT, x2: width - RIGHT, y1: y, y2: y}, svg);
    }

    // Series differ in their dashes, too, so that colours are not all that tells them apart.
    drawSeries(one, index, inside) {
      const places = one.points.filter(point => inside(point) && Number.isFinite(point[1]) && (!this.log.y || point[1] > 0))
        .map(([x, y]) => [this.x.to(x), this.y.to(y)]);
      const path = places.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
      const dashes = ["", "7 3", "2 3", "9 3 2 3"][Math.floor(index / 2) % 4];
      element("path", {class: "line", d: path, stroke: colour(one, index), "stroke-dasharray": dashes}, this.svg);
      if (places.length > 60) return;
      for (const [x, y] of places) element("circle", {cx: x, cy: y, r: 3, fill: colour(one, index)}, this.svg);
    }

    // The values next to the pointer, and the range that is being dragged.
    point(pixel, from) {
      const {spec} = this, wanted = this.x.from(Math.max(LEFT, pixel)), lines = [];
      this.overlay.replaceChildren();
      if (from !== null)
        element("rect", {class: "zoom", x: Math.min(from, pixel), y: TOP, width: Math.abs(pixel - from), height: HEIGHT - BOTTOM - TOP},
                this.overlay);
      let at = null;
      for (const {one, index} of this.shown()) {
        const point = nearest(one.points, wanted);
        if (!point) continue;
        if (at === null || Math.abs(point[0] - wanted) < Math.abs(at - wanted)) at = point[0];
        lines.push({text: `${one.name}: ${+point[1].toPrecision(5)}${spec.y.unit ? " " + spec.y.unit : ""}`, x: point[0], index, one});
      }
      if (at === null) return;
      const x = this.x.to(at);
      element("line", {class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM}, this.overlay);
      this.tip.replaceChildren();
      element("div", {}, this.tip, `${spec.x.label} ${spec.x.bytes ? short(at, true) : +at.toPrecision(7)}`);
      for (const line of lines.filter(line => line.x === at))
        element("div", {style: `color:${colour(line.one, line.index)}`}, this.tip, line.text);
      this.tip.hidden = false;
      const left = x + 14 + this.tip.offsetWidth > this.svg.clientWidth ? x - 6 - this.tip.offsetWidth : x + 14;
      this.tip.style.left = `${Math.max(0, left)}px`;
      this.tip.style.top = "3.2rem";
    }
  }

  if (typeof document !== "undefined")
    for (const script of document.querySelectorAll("script.chart")) new Chart(JSON.parse(script.textContent), script);
  return {short, ticks, scale, range, nearest};
})();
if (typeof module !== "undefined") module.exports = charts;
