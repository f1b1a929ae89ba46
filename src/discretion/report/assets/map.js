// The map of a report: a canvas, so that tens of thousands of values stay quick, and plain controls around it.
// Values and places are whole numbers of 16 bits (see scene.py); no library, nothing from the network.
"use strict";
(() => {
  const source = document.getElementById("map-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const at = (id) => document.getElementById(id);
  const canvas = at("canvas");
  const pen = canvas.getContext("2d");

  // --- what was released, unpacked

  const { ABSENT, numbers, colours } = released;
  const [left, bottom, right, top] = data.frame;
  const wide = right - left, high = top - bottom;
  // The drawing's own plane: from the upper left corner of the frame, y downwards.
  const X = (u) => (u / ABSENT) * wide, Y = (v) => high - (v / ABSENT) * high;
  const rings = ({ lengths, places }) => {
    const packed = numbers(places);
    let next = 0;
    return lengths.map((count) => {
      const path = new Path2D();
      const first = next;
      for (let i = 0; i < count; i++, next += 2) {
        path[i ? "lineTo" : "moveTo"](X(packed[next]), Y(packed[next + 1]));
      }
      path.closePath();
      return { path, corners: packed.subarray(first, next) };
    });
  };
  const joined = (parts) => parts.reduce((path, part) => (path.addPath(part.path), path), new Path2D());
  const lines = data.lines.map((line) => ({ ...line, path: joined(rings(line)) }));
  const layers = data.layers.map((layer) => ({ ...layer, values: numbers(layer.values), image: null }));
  const region = data.region.lengths.length ? joined(rings(data.region)) : null;
  const areas = data.areas ? rings(data.areas) : null;
  const dots = data.points ? numbers(data.points) : null;
  const [x0, y0, x1, y1] = data.box;
  const box = { x: x0 - left, y: top - y1, w: x1 - x0, h: y1 - y0 };
  const [columns, rows] = data.grid || [0, 0], dx = box.w / (columns - 1), dy = box.h / (rows - 1);
  const pixel = (k) => [k % columns, rows - 1 - Math.floor(k / columns)];

  // Where confidence sets answer: surely yes, surely no, and what the noise leaves open. Only places with a value count.
  const outside = (path) => {
    const all = new Path2D();
    all.rect(box.x - box.w, box.y - box.h, 3 * box.w, 3 * box.h);
    all.addPath(path);
    return all;
  };
  const answers = !data.between ? [] : [
    { name: "Surely yes", path: lines[0].path, kind: "plus", mark: "M15 5H25M20 0V10" },
    { name: "Surely no", path: outside(lines[1].path), kind: "minus", mark: "M15 5H25" },
    { name: "Undecided: the noise allows either answer", path: joined([lines[0], lines[1]]), kind: "hatch",
      mark: "M2 10L12 0M15 10L25 0M28 10L38 0" },
  ].map((each, i) => ({ ...each, share: data.answers ? data.answers[[0, 2, 1][i]] : 1, on: true }));
  // Places that have an answer: in the region, with a value of the first surface. Only the edge is tested by points.
  const answered = (() => {
    if (!answers.length) return null;
    const found = layers[0].values.map((whole) => (whole === ABSENT ? 0 : 1));
    if (!region) return found;
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [columns, rows];
    const context = sheet.getContext("2d");
    context.setTransform(1 / dx, 0, 0, 1 / dy, 0.5 - box.x / dx, 0.5 - box.y / dy);
    context.fill(region, "evenodd");
    const { data: drawn } = context.getImageData(0, 0, columns, rows);
    context.resetTransform();
    return found.map((has, k) => {
      const [i, j] = pixel(k), shade = drawn[4 * (j * columns + i) + 3];
      if (!has || shade === 0 || shade === 255) return shade && has;
      return context.isPointInPath(region, box.x + i * dx, box.y + j * dy, "evenodd") ? 1 : 0;
    });
  })();
  const valued = (() => {
    if (!answered) return null;
    const path = new Path2D();
    const across = (i) => box.x + Math.min(Math.max(i * dx, 0), box.w);
    const down = (j) => box.y + Math.min(Math.max(j * dy, 0), box.h);
    for (let j = 0; j < rows; j++) {
      const row = (rows - 1 - j) * columns, y = down(j - 0.5);
      for (let i = 0, end; i < columns; i = end + 1) {
        for (end = i; end < columns && answered[row + end];) end++;
        const x = across(i - 0.5);
        if (end > i) path.rect(x, y, across(end - 0.5) - x, down(j + 0.51) - y);
      }
    }
    return path;
  })();

  // --- colours

  const colour = colours(data.ramp);
  const picture = (layer) => {
    if (layer.image) return layer.image;
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [columns, rows];
    const context = sheet.getContext("2d"), image = context.createImageData(columns, rows);
    layer.values.forEach((whole, k) => {
      if (whole === ABSENT) return;
      const [i, j] = pixel(k);
      image.data.set([...colour(whole), 255], 4 * (j * columns + i));
    });
    context.putImageData(image, 0, 0);
    return (layer.image = sheet);
  };

  // --- what is shown

  const state = { layer: 0, on: lines.map((line) => line.shown), scale: 1, x: 0, y: 0, focus: null };
  let size = { w: 0, h: 0, ratio: 1 };
  const fit = () => {
    const room = 0.96;
    state.scale = room * Math.min(size.w / box.w, size.h / box.h);
    state.x = (size.w - box.w * state.scale) / 2 - box.x * state.scale;
    state.y = (size.h - box.h * state.scale) / 2 - box.y * state.scale;
  };
  const least = () => 0.5 * Math.min(size.w / box.w, size.h / box.h);
  const resize = () => {
    const before = size.w;
    const w = canvas.parentElement.clientWidth;
    const h = Math.max(220, Math.min(w * (box.h / box.w), 0.8 * window.innerHeight, 900));
    const ratio = window.devicePixelRatio || 1;
    size = { w, h, ratio };
    canvas.style.height = `${h}px`;
    [canvas.width, canvas.height] = [Math.round(w * ratio), Math.round(h * ratio)];
    if (w !== before) fit();
    draw();
  };

  let waiting = false;
  const draw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  };
  const world = () => pen.setTransform(
    size.ratio * state.scale, 0, 0, size.ratio * state.scale, size.ratio * state.x, size.ratio * state.y);
  const screen = () => pen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const paint = () => {
    const layer = layers[state.layer], px = 1 / state.scale;
    screen();
    pen.clearRect(0, 0, size.w, size.h);
    pen.save();
    world();
    if (region) pen.clip(region, "evenodd");
    if (data.grid) {
      pen.imageSmoothingEnabled = dx * state.scale < 24;
      pen.drawImage(picture(layer), box.x - dx / 2, box.y - dy / 2, box.w + dx, box.h + dy);
    } else {
      drawPlaces(layer, px);
    }
    if (valued) pen.clip(valued);
    answers.forEach((each) => each.on && fill(each));
    world();
    lines.forEach((line, i) => {
      if (!state.on[i]) return;
      pen.setLineDash([]);
      [pen.strokeStyle, pen.lineWidth, pen.lineJoin] = ["#ffffff", 4 * px, "round"];
      pen.stroke(line.path);
      [pen.strokeStyle, pen.lineWidth] = ["#c21f4c", 2 * px];
      if (line.dashed) pen.setLineDash([6 * px, 4 * px]);
      pen.stroke(line.path);
    });
    pen.restore();
    world();
    pen.setLineDash([]);
    [pen.strokeStyle, pen.lineWidth] = [style("--quiet"), 1 * px];
    if (region) pen.stroke(region);
    else pen.strokeRect(box.x, box.y, box.w, box.h);
    screen();
    bar();
    cross();
  };
  const drawPlaces = (layer, px) => {
    if (areas) {
      areas.forEach((area, k) => {
        const whole = layer.values[data.areas.owner[k]];
        pen.fillStyle = whole === ABSENT ? style("--absent") : `rgb(${colour(whole)})`;
        pen.fill(area.path);
        [pen.strokeStyle, pen.lineWidth] = [pen.fillStyle, px];
        pen.stroke(area.path);
      });
      return;
    }
    const radius = 0.5 * Math.sqrt((box.w * box.h) / Math.max(layer.values.length, 1));
    layer.values.forEach((whole, k) => {
      if (whole === ABSENT) return;
      pen.fillStyle = `rgb(${colour(whole)})`;
      pen.beginPath();
      pen.arc(X(dots[2 * k]), Y(dots[2 * k + 1]), radius, 0, 7);
      pen.fill();
    });
  };
  // Marks keep their size and move with the map: + surely yes, - surely no, lines across what is undecided.
  const fill = ({ path, kind }) => {
    const space = 18, from = (place, period) => (((place % period) + period) % period) - period;
    pen.save();
    world();
    pen.clip(path, "evenodd");
    screen();
    pen.beginPath();
    if (kind === "hatch") {
      for (let start = from(state.x + state.y, 9) - size.h; start < size.w + size.h; start += 9) {
        pen.moveTo(start, 0);
        pen.lineTo(start - size.h, size.h);
      }
    } else {
      for (let y = from(state.y, 2 * space), odd = 0; y < size.h + space; y += space, odd = 1 - odd) {
        for (let x = from(state.x, space) + (odd * space) / 2; x < size.w + space; x += space) {
          pen.moveTo(x - 3.5, y);
          pen.lineTo(x + 3.5, y);
          if (kind === "minus") continue;
          pen.moveTo(x, y - 3.5);
          pen.lineTo(x, y + 3.5);
        }
      }
    }
    pen.setLineDash([]);
    [pen.strokeStyle, pen.lineWidth] = ["rgba(255,255,255,.8)", kind === "hatch" ? 2.4 : 3.4];
    pen.stroke();
    [pen.strokeStyle, pen.lineWidth] = ["#1d2935", kind === "hatch" ? 0.8 : 1.5];
    pen.stroke();
    pen.restore();
  };
  const stroke = (path) => {
    pen.setLineDash([]);
    [pen.strokeStyle, pen.lineWidth] = ["#ffffff", 5];
    pen.stroke(path);
    [pen.strokeStyle, pen.lineWidth] = ["#1d2935", 1.8];
    pen.stroke(path);
  };
  const bar = () => {
    if (!data.metres) return;
    const room = ((0.25 * size.w) / state.scale) * data.metres, power = 10 ** Math.floor(Math.log10(room));
    const metres = [5, 2, 1].map((k) => k * power).find((each) => each <= room);
    const length = (metres / data.metres) * state.scale, path = new Path2D();
    const end = size.w - 14, base = size.h - 14;
    path.moveTo(end - length, base - 6);
    path.lineTo(end - length, base);
    path.lineTo(end, base);
    path.lineTo(end, base - 6);
    stroke(path);
    const text = metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
    [pen.font, pen.textAlign, pen.lineWidth, pen.strokeStyle] = ["13px system-ui, sans-serif", "center", 3, "#fff"];
    pen.strokeText(text, end - length / 2, base - 8);
    pen.fillStyle = "#1d2935";
    pen.fillText(text, end - length / 2, base - 8);
  };
  const cross = () => {
    if (!state.focus) return;
    const { x, y } = state.focus, path = new Path2D();
    [[-9, 0, -3, 0], [3, 0, 9, 0], [0, -9, 0, -3], [0, 3, 0, 9]].forEach(([a, b, c, d]) => {
      path.moveTo(x + a, y + b);
      path.lineTo(x + c, y + d);
    });
    stroke(path);
  };

  // --- what is said

  // Four digits, and as many more as tell a hundredth of the scale apart.
  const short = (value, { low, high }) => {
    const more = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low)));
    const digits = Math.min(Math.max(4, 3 + more), 12);
    return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
  };
  const exp = (value) => Number(Math.exp(value).toPrecision(3)).toLocaleString("en");
  const said = (value, layer, between = " ") =>
    short(value, layer) + (layer.logarithm && Math.abs(value) < 300 ? `${between}(${exp(value)})` : "");
  const nearest = (x, y) => {
    if (data.grid) {
      const i = Math.round((x - box.x) / dx), j = Math.round((box.y + box.h - y) / dy);
      return i >= 0 && i < columns && j >= 0 && j < rows ? j * columns + i : -1;
    }
    if (areas) {
      pen.setTransform(1, 0, 0, 1, 0, 0);
      const k = areas.findIndex((area) => pen.isPointInPath(area.path, x, y));
      return k < 0 ? -1 : data.areas.owner[k];
    }
    let best = -1, reach = box.w * box.h;
    for (let k = 0; k < dots.length / 2; k++) {
      const away = (X(dots[2 * k]) - x) ** 2 + (Y(dots[2 * k + 1]) - y) ** 2;
      if (away < reach) [best, reach] = [k, away];
    }
    return best;
  };
  const inside = (path, x, y) => {
    pen.setTransform(1, 0, 0, 1, 0, 0);
    return pen.isPointInPath(path, x, y, "evenodd");
  };
  const tell = (px, py) => {
    const x = (px - state.x) / state.scale, y = (py - state.y) / state.scale;
    const layer = layers[state.layer], k = region && !inside(region, x, y) ? -1 : nearest(x, y);
    const digits = { maximumFractionDigits: Math.max(0, 3 - Math.floor(Math.log10(wide))) };
    const near = [(left + x) * data.stretch, top - y].map((each) => each.toLocaleString("en", digits)).join(", ");
    let text = `${near}: outside the map.`;
    if (k >= 0 && layer.values[k] === ABSENT) text = `${near}: too few records near for a value.`;
    else if (k >= 0) {
      const value = layer.low + (layer.values[k] / (ABSENT - 1)) * (layer.high - layer.low);
      text = `${near}: ${layer.name.toLowerCase()} ${said(value, layer)}.`;
      if (answered && answered[k]) {
        // Asked at the released place, as the value is; those on the frame lie on the outlines' own edge.
        const [i, j] = pixel(k);
        const u = box.x + box.w * (1e-4 + ((1 - 2e-4) * i) / (columns - 1));
        const v = box.y + box.h * (1e-4 + ((1 - 2e-4) * j) / (rows - 1));
        const yes = inside(lines[0].path, u, v), maybe = inside(lines[1].path, u, v);
        text += yes ? " Surely yes." : maybe ? " Undecided: the noise allows either answer." : " Surely no.";
      }
    }
    if (at("readout").textContent !== text) at("readout").textContent = text;
  };

  // --- controls

  const make = (name, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };
  const sample = (kind, shape = "M0 5H40") => {
    const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
    svg.setAttribute("viewBox", "0 0 40 10");
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("class", kind);
    ["key-halo", kind].forEach((name) => {
      const line = document.createElementNS(space, "path");
      line.setAttribute("class", name);
      line.setAttribute("d", shape);
      svg.append(line);
    });
    return svg;
  };
  const percent = (share) =>
    share < 0.005 ? "under 1 %" : share >= 0.995 && share < 1 ? "over 99 %" : `${Math.round(100 * share)} %`;
  const legend = () => {
    const layer = layers[state.layer];
    at("units").textContent = layer.units;
    at("ticks").replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((share) =>
      make("span", { textContent: said(layer.low + share * (layer.high - layer.low), layer, "\n") })));
  };
  const surfaces = make("fieldset", {}, make("legend", { textContent: "Colours show" }));
  layers.forEach((layer, i) => {
    const input = make("input", { type: "radio", name: "layer", value: String(i), checked: i === 0 });
    input.addEventListener("change", () => {
      state.layer = i;
      legend();
      draw();
    });
    surfaces.append(make("label", {}, input, make("span", { textContent: layer.name })));
  });
  at("controls").append(surfaces);
  const toggle = (name, checked, mark, change) => {
    const input = make("input", { type: "checkbox", checked });
    input.addEventListener("change", () => {
      change(input.checked);
      draw();
    });
    return make("label", {}, input, mark, make("span", { textContent: name }));
  };
  if (answers.length) {
    const group = make("fieldset", {}, make("legend", { textContent: data.question || "Answers" }));
    answers.forEach((each) => {
      const part = !data.answers ? "" : !each.share ? " (nowhere)" : `, at ${percent(each.share)} of the places`;
      const label = toggle(each.name + part, each.share > 0, sample("key-mark", each.mark), (on) => (each.on = on));
      label.firstChild.disabled = !each.share;
      group.append(label);
    });
    at("controls").append(group);
  }
  if (lines.length) {
    const outlines = make("fieldset", {}, make("legend", { textContent: "Outlines" }));
    lines.forEach((line, i) => {
      const nowhere = !line.lengths.length, name = nowhere ? `${line.name} (nowhere)` : line.name;
      const label = toggle(name, line.shown && !nowhere, sample(`key-line${line.dashed ? " dashed" : ""}`), (on) => (state.on[i] = on));
      label.firstChild.disabled = nowhere;
      outlines.append(label);
    });
    at("controls").append(outlines);
  }
  if (layers.some((layer) => layer.values.includes(ABSENT))) {
    at("controls").append(make("p", { className: "quiet" }, make("span", { className: "sample absent" }),
      " No value: too few records near, or outside."));
  }
  data.notes.forEach((note) => at("controls").append(make("p", { className: "quiet", textContent: note })));

  // --- moving about

  const zoom = (factor, x = size.w / 2, y = size.h / 2) => {
    const scale = Math.min(Math.max(state.scale * factor, least()), 400 * least());
    state.x = x - ((x - state.x) * scale) / state.scale;
    state.y = y - ((y - state.y) * scale) / state.scale;
    state.scale = scale;
    canvas.dataset.scale = (scale / (2 * least())).toFixed(3);
    draw();
  };
  const pan = (dx, dy) => {
    state.x = Math.min(Math.max(state.x + dx, size.w / 2 - (box.x + box.w) * state.scale), size.w / 2 - box.x * state.scale);
    state.y = Math.min(Math.max(state.y + dy, size.h / 2 - (box.y + box.h) * state.scale), size.h / 2 - box.y * state.scale);
    canvas.dataset.at = `${Math.round(state.x)},${Math.round(state.y)}`;
    draw();
  };
  const whole = () => {
    fit();
    zoom(1);
  };
  at("zoom-in").addEventListener("click", () => zoom(1.5));
  at("zoom-out").addEventListener("click", () => zoom(1 / 1.5));
  at("zoom-all").addEventListener("click", whole);
  const middle = () => {
    state.focus = { x: size.w / 2, y: size.h / 2 };
    tell(state.focus.x, state.focus.y);
    draw();
  };
  const keys = {
    ArrowLeft: () => pan(40, 0), ArrowRight: () => pan(-40, 0), ArrowUp: () => pan(0, 40), ArrowDown: () => pan(0, -40),
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: whole,
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
    middle();
  });
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) middle();
  });
  canvas.addEventListener("blur", () => {
    state.focus = null;
    draw();
  });
  // The wheel scrolls the page until the map was clicked.
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    zoom(Math.exp(-Math.sign(event.deltaY) * 0.2), event.offsetX, event.offsetY);
  }, { passive: false });
  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = { x: event.offsetX, y: event.offsetY }, before = fingers.get(event.pointerId);
    if (!before) {
      tell(now.x, now.y);
      return;
    }
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, each]) => each);
    if (others.length) {
      const away = (a) => Math.max(Math.hypot(a.x - others[0].x, a.y - others[0].y), 1);
      zoom(away(now) / away(before), others[0].x, others[0].y);
    } else pan(now.x - before.x, now.y - before.y);
    fingers.set(event.pointerId, now);
  });
  ["pointerup", "pointercancel"].forEach((name) =>
    canvas.addEventListener(name, (event) => fingers.delete(event.pointerId)));

  document.addEventListener("themechange", draw);
  window.addEventListener("resize", resize);
  at("map-part").hidden = false;
  legend();
  resize();
})();
