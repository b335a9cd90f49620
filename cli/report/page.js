"use strict";
/* The script of a report: theme, reading values, tables behind plots, and the time line. */
(function () {
  var root = document.documentElement, tip = document.getElementById("tip");

  function dark() {
    var set = root.dataset.theme;
    return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function number(v) {
    if (v === null || !isFinite(v)) return "-";
    var a = Math.abs(v);
    return a !== 0 && (a < 1e-3 || a >= 1e7) ? v.toPrecision(4) : String(+v.toPrecision(5));
  }
  function make(name, text, parent) {
    var e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.appendChild(e);
    return e;
  }

  /* ---- theme ---- */
  var button = document.getElementById("theme"), redraw = [];
  function nameTheme() { button.textContent = dark() ? "Light page" : "Dark page"; }
  try { if (localStorage.getItem("verbena-theme")) root.dataset.theme = localStorage.getItem("verbena-theme"); } catch (e) { /* no storage */ }
  button.addEventListener("click", function () {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("verbena-theme", root.dataset.theme); } catch (e) { /* no storage */ }
    nameTheme();
    redraw.forEach(function (f) { f(); });
  });
  nameTheme();

  /* ---- tabs: figures with the same axes change together ---- */
  document.querySelectorAll("figure > input").forEach(function (input) {
    input.addEventListener("change", function () {
      var text = input.nextElementSibling.textContent;
      document.querySelectorAll("figure > input + label").forEach(function (label) {
        if (/^by /.test(text) && label.textContent === text) label.previousElementSibling.checked = true;
      });
    });
  });

  /* ---- values of a plot ---- */
  function showTip(box, x, y, lines) {
    tip.textContent = "";
    lines.forEach(function (line, i) {
      var div = make("div", undefined, tip);
      if (line.look !== undefined) {
        var dot = make("i", undefined, div);
        dot.style.background = "var(--c" + line.look + ")";
      }
      make(i === 0 ? "b" : "span", line.text, div);
    });
    tip.hidden = false;
    var left = box.left + x + 14, width = tip.offsetWidth;
    if (left + width > innerWidth - 8) left = Math.max(8, box.left + x - width - 14);
    tip.style.left = left + scrollX + "px";
    tip.style.top = Math.max(box.top + y + scrollY, scrollY + 4) + "px";
  }

  function Reader(panel) {
    var chart = panel.querySelector(".chart"), data = JSON.parse(panel.querySelector("script").textContent);
    var all = [], at = -1;
    data.series.forEach(function (s) { s.x.forEach(function (x, k) { if (s.y[k] !== null) all.push(x); }); });
    all = Array.from(new Set(all)).sort(function (a, b) { return a - b; });

    function svg() {
      return Array.from(chart.querySelectorAll("svg")).find(function (s) { return getComputedStyle(s).display !== "none"; });
    }
    function nearest(list, x, dist) {
      var best = -1, least = Infinity;
      list.forEach(function (v, k) { var d = dist(v, x); if (d < least) { least = d; best = k; } });
      return best;
    }
    function show(k) {
      var s = svg(), area = s.dataset.area.split(" ").map(Number), ax = s.dataset.x.split(" ").map(Number);
      var x = all[k], part = ax[2] ? Math.log(x / ax[0]) / Math.log(ax[1] / ax[0]) : (x - ax[0]) / (ax[1] - ax[0]);
      var px = area[0] + part * (area[1] - area[0]), box = s.getBoundingClientRect(), scale = box.width / s.viewBox.baseVal.width;
      var lines = [{ text: data.bars.length ? data.bars[x] : data.x + " " + number(x) }], near = (ax[1] - ax[0]) / 50;
      data.series.forEach(function (e) {
        var i = nearest(e.x.map(function (v, k) { return e.y[k] === null ? NaN : v; }), x, function (a, b) { return isNaN(a) ? Infinity : Math.abs(a - b); });
        if (i < 0 || (!ax[2] && Math.abs(e.x[i] - x) > near)) return;
        var text = e.name + ": " + number(e.y[i]);
        if (e.low && e.low[i] < e.high[i]) text += " (" + number(e.low[i]) + " to " + number(e.high[i]) + ")";
        lines.push({ text: text, look: e.look });
      });
      lines[0].text += data.y ? " \u2013 " + data.y : "";
      var c = s.querySelector(".cursor") || s.appendChild(document.createElementNS(s.namespaceURI, "path"));
      c.setAttribute("class", "cursor");
      c.setAttribute("d", "M" + px + " " + area[2] + "V" + area[3]);
      showTip(box, px * scale, area[2] * scale, lines);
      at = k;
    }
    function hide() {
      tip.hidden = true;
      chart.querySelectorAll(".cursor").forEach(function (c) { c.remove(); });
    }
    chart.addEventListener("pointermove", function (e) {
      var s = svg(), box = s.getBoundingClientRect(), area = s.dataset.area.split(" ").map(Number), ax = s.dataset.x.split(" ").map(Number);
      var part = ((e.clientX - box.left) * s.viewBox.baseVal.width / box.width - area[0]) / (area[1] - area[0]);
      if (part < -0.03 || part > 1.03 || !all.length) return hide();
      var x = ax[2] ? ax[0] * Math.pow(ax[1] / ax[0], part) : ax[0] + part * (ax[1] - ax[0]);
      show(nearest(all, x, function (a, b) { return ax[2] ? Math.abs(Math.log(a / b)) : Math.abs(a - b); }));
    });
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", function (e) {
      var step = Math.max(1, Math.round(all.length / 100));
      var to = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: all.length - 1 }[e.key];
      if (e.key === "Escape") return hide();
      if (to === undefined || !all.length) return;
      e.preventDefault();
      show(Math.max(0, Math.min(all.length - 1, to)));
    });

    var details = panel.querySelector(".values");
    details.addEventListener("toggle", function () {
      if (!details.open || details.querySelector("table")) return;
      var scroll = make("div", undefined, details), table = make("table", undefined, scroll);
      scroll.className = "scroll";
      scroll.tabIndex = 0;
      var head = make("tr", undefined, make("thead", undefined, table)), body = make("tbody", undefined, table);
      [data.bars.length ? "name" : data.x].concat(data.series.map(function (s) { return s.name; })).forEach(function (t) {
        make("th", t, head).scope = "col";
      });
      all.slice(0, 1000).forEach(function (x) {
        var row = make("tr", undefined, body);
        make("th", data.bars.length ? data.bars[x] : number(x), row).scope = "row";
        data.series.forEach(function (s) {
          var k = s.x.indexOf(x);
          make("td", k < 0 ? "" : number(s.y[k]), row).className = "num";
        });
      });
    });
  }
  document.querySelectorAll(".panel").forEach(Reader);

  /* ---- the time line ---- */
  function TimeLine(figure) {
    var canvas = figure.querySelector("canvas"), out = figure.querySelector("output");
    var data = JSON.parse(figure.querySelector("script").textContent), p = data.pieces;
    var ROW = 17, GAP = 12, AXIS = 26, from = 0, to = data.end, tops = [], height = 6, n = p.length / 5;
    data.tracks.forEach(function (t) { tops.push(height + 15); height += 15 + ROW * t.depths + GAP; });
    height += AXIS;

    function ticks(a, b, room) {
      var raw = (b - a) / Math.max(2, room / 90), power = Math.pow(10, Math.floor(Math.log10(raw))), list = [];
      var step = [1, 2, 5, 10].map(function (f) { return f * power; }).find(function (s) { return s >= raw; });
      for (var v = Math.ceil(a / step) * step; v <= b; v += step) list.push(v);
      return list;
    }
    function time(us) {
      return Math.abs(to - from) > 2000 ? number(us / 1000) + " ms" : number(us) + " \u00b5s";
    }
    function draw() {
      var width = canvas.clientWidth, ratio = window.devicePixelRatio || 1, css = getComputedStyle(root);
      var c = canvas.getContext("2d"), drawn = 0;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = height + "px";
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.clearRect(0, 0, width, height);
      c.font = "12px system-ui, sans-serif";
      function colour(name) { return css.getPropertyValue(name).trim(); }
      var looks = [0, 1, 2, 3, 4, 5, 6, 7].map(function (i) { return colour("--c" + i); });
      ticks(from, to, width).forEach(function (v) {
        var x = (v - from) / (to - from) * width;
        c.strokeStyle = colour("--grid");
        c.beginPath(); c.moveTo(x, 0); c.lineTo(x, height - AXIS + 4); c.stroke();
        c.fillStyle = colour("--soft");
        c.textAlign = x < 20 ? "left" : x > width - 30 ? "right" : "center";
        c.fillText(time(v), x, height - 8);
      });
      c.textAlign = "left";
      for (var i = 0; i < n; i++) {
        var begin = p[5 * i + 3], us = p[5 * i + 4], x0 = (begin - from) / (to - from) * width, x1 = (begin + us - from) / (to - from) * width;
        if (x1 < 0 || x0 > width) continue;
        var y = tops[p[5 * i]] + ROW * p[5 * i + 1], name = data.names[p[5 * i + 2]], w = Math.max(x1 - x0, 0.5);
        c.fillStyle = looks[name[1]];
        c.fillRect(x0, y, w > 3 ? w - 0.7 : w, ROW - 2);
        drawn++;
        if (w > 26) {
          c.save(); c.beginPath(); c.rect(Math.max(x0, 0), y, x1 - Math.max(x0, 0) - 2, ROW); c.clip();
          c.fillStyle = colour("--card");
          c.fillText(name[0], Math.max(x0, 0) + 4, y + 11.5);
          c.restore();
        }
      }
      c.fillStyle = colour("--ink");
      data.tracks.forEach(function (t, i) { c.fillText(t.name, 2, tops[i] - 4); });
      out.textContent = time(from) + " to " + time(to) + ", " + drawn + " of " + n + " pieces";
      canvas.dataset.drawn = drawn;
    }
    function limit(a, b) {
      var span = Math.min(Math.max(b - a, 0.5), data.end);
      from = Math.min(Math.max(a, 0), data.end - span);
      to = from + span;
      draw();
    }
    function zoom(factor, at) {
      var centre = at === undefined ? (from + to) / 2 : at;
      limit(centre - (centre - from) * factor, centre + (to - centre) * factor);
    }
    function move(part) { var d = (to - from) * part; limit(from + d, to + d); }
    var acts = { "in": function () { zoom(0.6); }, out: function () { zoom(1 / 0.6); }, left: function () { move(-0.2); }, right: function () { move(0.2); }, all: function () { limit(0, data.end); } };
    figure.querySelectorAll("[data-zoom]").forEach(function (b) { b.addEventListener("click", function () { acts[b.dataset.zoom](); }); });
    canvas.addEventListener("keydown", function (e) {
      var act = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all", Home: "all" }[e.key];
      if (!act) return;
      e.preventDefault();
      acts[act]();
    });
    canvas.addEventListener("wheel", function (e) {
      e.preventDefault();
      var box = canvas.getBoundingClientRect(), at = from + (e.clientX - box.left) / box.width * (to - from);
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) move(e.deltaX / box.width); else zoom(Math.pow(1.0015, e.deltaY), at);
    }, { passive: false });
    var held = null;
    canvas.addEventListener("pointerdown", function (e) { held = { x: e.clientX, from: from, to: to }; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointerup", function () { held = null; });
    canvas.addEventListener("pointermove", function (e) {
      var box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
      if (held) {
        var d = (held.x - e.clientX) / box.width * (held.to - held.from);
        return limit(held.from + d, held.to + d);
      }
      var us = from + x / box.width * (to - from), found = -1;
      for (var i = 0; i < n; i++) {
        var top = tops[p[5 * i]] + ROW * p[5 * i + 1];
        if (y >= top && y < top + ROW - 2 && us >= p[5 * i + 3] && us <= p[5 * i + 3] + p[5 * i + 4]) found = i;
      }
      if (found < 0) { tip.hidden = true; return; }
      showTip(box, x, y + 14, [{ text: data.names[p[5 * found + 2]][0], look: data.names[p[5 * found + 2]][1] },
        { text: data.tracks[p[5 * found]].name }, { text: number(p[5 * found + 4]) + " \u00b5s from " + number(p[5 * found + 3] / 1000) + " ms on" }]);
    });
    canvas.addEventListener("pointerleave", function () { tip.hidden = true; });
    window.addEventListener("resize", draw);
    matchMedia("print").addEventListener("change", draw); /* paper is white */
    redraw.push(draw);
    draw();
  }
  var figure = document.getElementById("fig-timeline");
  if (figure) TimeLine(figure);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    nameTheme();
    redraw.forEach(function (f) { f(); });
  });
}());
