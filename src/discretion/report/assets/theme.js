// The button that turns the page dark or light; until it is pressed the reader's own setting holds.
"use strict";
(() => {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const asked = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : asked.matches);
  const show = () => {
    button.textContent = dark() ? "Light page" : "Dark page";
    document.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    show();
  });
  asked.addEventListener("change", show);
  button.hidden = false;
  show();
  const save = document.getElementById("save");
  if (save) {
    save.hidden = false;
    save.addEventListener("click", () => {
      // The very bytes of certificate.json.
      const text = JSON.parse(document.getElementById("certificate-data").textContent);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = "certificate.json";
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
})();
