// The explorer: sliders in, answers of the local server out. The latest question wins.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const form = at("setting");
  const limits = JSON.parse(at("limits").textContent);
  let seed = 1;

  // --- sliders move by equal factors; the number beside each is exact

  const STEPS = 1000;
  const round = (value, whole) => (whole ? Math.round(value) : Number(value.toPrecision(3)));
  const toValue = ({ low, high, whole }, place) => round(low * (high / low) ** (place / STEPS), whole);
  const toPlace = ({ low, high }, value) => Math.round((STEPS * Math.log(value / low)) / Math.log(high / low));
  document.querySelectorAll(".slider").forEach((row) => {
    const [number, slider] = row.querySelectorAll("input");
    const range = limits[row.dataset.name];
    const follow = () => {
      if (number.validity.valid && number.value) slider.value = toPlace(range, Number(number.value));
      slider.setAttribute("aria-valuetext", number.value);
    };
    slider.addEventListener("input", () => {
      number.value = toValue(range, Number(slider.value));
      slider.setAttribute("aria-valuetext", number.value);
      ask();
    });
    number.addEventListener("input", () => {
      follow();
      ask();
    });
    follow();
  });
  form.addEventListener("change", (event) => {
    if (event.target.name === "mechanism") {
      // Noise of a kernel sum is in units of the response, the scale of a posterior far below them.
      at("n-scale").value = event.target.value === "kernel-sum" ? 10 : 5e-5;
      at("n-scale").dispatchEvent(new Event("input"));
    }
    if (event.target.tagName === "SELECT") ask();
  });
  form.addEventListener("submit", (event) => event.preventDefault());

  // --- questions

  const query = () => new URLSearchParams(new FormData(form)).toString();
  const get = async (name, words) => {
    const answer = await fetch(`${name}?${words}`, { cache: "no-store" });
    const found = await answer.json();
    if (found.error) throw new Error(found.error);
    return found;
  };
  const wrong = (text) => {
    at("wrong").hidden = !text;
    at("wrong").textContent = text;
    document.body.dataset.wrong = text ? "yes" : "no";
  };
  let latest = 0, soon, later;
  const ask = () => {
    const mine = ++latest;
    document.body.dataset.state = "asking";
    clearTimeout(soon);
    clearTimeout(later);
    soon = setTimeout(() => price(mine), 60);
  };
  const still = (mine) => mine === latest;
  const price = async (mine) => {
    const words = query();
    try {
      const found = await get("prices", words);
      if (!still(mine)) return;
      wrong("");
      showPrices(found);
      later = setTimeout(() => more(mine, words, found.searches), 400);
    } catch (error) {
      if (!still(mine)) return;
      wrong(error.message);
      document.body.dataset.state = "ready";
    }
  };
  const more = async (mine, words, searches) => {
    try {
      const map = await get("world", `${words}&seed=${seed}`);
      if (!still(mine)) return;
      showWorld(map);
      if (searches) {
        at("searching").textContent = "Searching for a smaller epsilon that can be proved ...";
        const found = await get("certified", words);
        if (!still(mine)) return;
        rows(at("rules"), found.rules.map((rule) => [rule.name, `epsilon ≤ ${rule.epsilon}`]), true);
        at("searching").textContent = found.complete ? "" : "The search was cut short; the command searches longer.";
      }
      document.body.dataset.state = "ready";
    } catch (error) {
      if (still(mine)) wrong(error.message);
      document.body.dataset.state = "ready";
    }
  };

  // --- answers

  const rows = (list, pairs, add = false) => {
    const nodes = pairs.flatMap(([name, what]) => ["dt", "dd"].map((kind, i) =>
      Object.assign(document.createElement(kind), { textContent: i ? what : name })));
    if (add) list.append(...nodes);
    else list.replaceChildren(...nodes);
  };
  const showPrices = (found) => {
    rows(at("rules"), found.rules.map((rule) => [rule.name, `epsilon ≤ ${rule.epsilon}`]));
    at("searching").textContent = "";
    rows(at("facts"), [
      ["Such releases within the budget (L_max, quick rules)", found.within],
      ...found.attack,
      ["Least value of the kernel", found.least_kernel.toPrecision(3)],
    ]);
    // Drawn by this page's own server from numbers alone.
    at("chart").replaceChildren(
      document.importNode(new DOMParser().parseFromString(found.chart, "text/html").body.firstChild, true));
    for (const name of ["command", "calibration"]) {
      // An option stays on one line with its value.
      const parts = found[name].split(/ (?=--)/).map((textContent) =>
        Object.assign(document.createElement("span"), { textContent }));
      at(name).replaceChildren(...parts.flatMap((part, i) => (i ? [" ", part] : [part])));
    }
  };
  const showWorld = (found) => {
    const colour = released.colours(found.ramp), [columns, rows_] = found.grid;
    found.layers.forEach((layer, i) => {
      const canvas = at(`world-${i}`), pen = canvas.getContext("2d");
      [canvas.width, canvas.height] = [columns, rows_];
      const image = pen.createImageData(columns, rows_);
      released.numbers(layer.values).forEach((whole, k) => {
        image.data.set([...colour(whole), 255], 4 * ((rows_ - 1 - Math.floor(k / columns)) * columns + (k % columns)));
      });
      pen.putImageData(image, 0, 0);
      at(`name-${i}`).textContent = layer.name;
    });
    at("world-words").textContent = found.words;
  };
  at("again").addEventListener("click", () => {
    seed += 1;
    ask();
  });
  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
    const text = at(button.dataset.of).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(at(button.dataset.of));
      button.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }));
  ask();
})();
