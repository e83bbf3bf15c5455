// What share/pages/charts.js computes, and that a chart is drawn of a description: `node charts_test.js CHARTS.JS`.
"use strict";
const assert = require("assert"), fs = require("fs"), vm = require("vm");
const path = process.argv[2], charts = require(path);

// Ticks are round, inside of the range, and a few.
for (const [low, high] of [[0, 103], [2.97, 3.02], [-5, 12], [1e-9, 3e-9], [0, 1e12]]) {
  const list = charts.ticks(low, high, 5, false, false);
  assert(list.length >= 3 && list.length <= 11, `${low} to ${high}: ${list}`);
  assert(list.every(value => value >= low - 1e-12 && value <= high * (1 + 1e-9)), `${list}`);
}
assert.deepStrictEqual(charts.ticks(0, 100, 5, false, false), [0, 20, 40, 60, 80, 100]);
assert.deepStrictEqual(charts.ticks(1, 1e6, 7, true, false), [1, 10, 100, 1e3, 1e4, 1e5, 1e6]);
assert.deepStrictEqual(charts.ticks(1024, 8192, 9, true, true), [1024, 2048, 4096, 8192]);
assert.strictEqual(charts.short(131072, true), "128 KiB");
assert.strictEqual(charts.short(12345), "12.3k");
assert.strictEqual(charts.short(0), "0");

// A scale and its inverse, linear and logarithmic.
for (const log of [false, true]) {
  const scale = charts.scale(2, 2000, 50, 450, log);
  assert.strictEqual(scale.to(2), 50);
  assert(Math.abs(scale.to(2000) - 450) < 1e-9);
  assert(Math.abs(scale.from(scale.to(77)) - 77) < 1e-9);
}
assert.deepStrictEqual(charts.nearest([[1, 10], [5, 20], [9, 30]], 6.9), [5, 20]);
assert.deepStrictEqual(charts.range([4], true), [2, 8]);

// A document of a few lines, in which everything that is drawn can be counted.
class Element {
  constructor(name) { Object.assign(this, {name, children: [], attributes: {}, style: {}, classList: {toggle() {}}, clientWidth: 600}); }
  get firstChild() { return {namespaceURI: "svg"}; }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  appendChild(child) { this.children.push(child); return child; }
  replaceChildren() { this.children = []; }
  replaceWith(other) { drawn.push(other); }
  all(name) { return this.children.flatMap(child => (child.name === name ? [child] : []).concat(child.all ? child.all(name) : [])); }
}
const drawn = [], script = new Element("script");
script.textContent = JSON.stringify({title: "Loss", x: {label: "step"}, y: {label: "loss", unit: "nats", log: true},
  series: [{name: "a", points: [[1, 8], [2, 4], [3, 2]]}, {name: "b", points: [[1, 6], [2, 3]]}], mark: 1});
const document = {createElement: name => new Element(name), createElementNS: (_, name) => new Element(name),
  createTextNode: text => ({text}), querySelectorAll: () => [script]};
vm.runInNewContext(fs.readFileSync(path, "utf8"), {document, ResizeObserver: class { observe() {} }});
assert.strictEqual(drawn.length, 1);
const [figure] = drawn, [svg] = figure.all("svg");
assert.strictEqual(svg.all("path").length, 2);
assert.strictEqual(svg.all("circle").length, 5);
assert(svg.all("text").some(text => text.textContent === "loss, nats") && svg.all("text").some(text => text.textContent === "step"));
assert.strictEqual(svg.all("line").filter(line => line.attributes.class === "mark").length, 1);
const inside = svg.all("circle").every(({attributes: {cx, cy}}) => cx >= 0 && cx <= 600 && cy >= 0 && cy <= 250);
assert(inside, "a point is outside of the chart");
assert.strictEqual(figure.all("button").length, 2, "both axes may be logarithmic");
figure.all("span").find(span => span.children.some(child => child.text === "b")).onclick();
assert.strictEqual(svg.all("path").length, 1, "a click on the legend hides a series");
