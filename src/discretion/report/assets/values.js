// Released values as they travel: whole numbers of 16 bits in base64, and the colours they stand for.
"use strict";
const released = (() => {
  const ABSENT = 65535;
  const numbers = (text) => new Uint16Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const colours = (ramp) => {
    const stops = ramp.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    return (whole) => {
      const place = (whole / (ABSENT - 1)) * (stops.length - 1);
      const i = Math.min(Math.floor(place), stops.length - 2);
      return stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (place - i)));
    };
  };
  return { ABSENT, numbers, colours };
})();
