// Colours of groups and of heat, for light and for dark ground.

const dark = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => dark.matches;
export const onScheme = (tell) => dark.addEventListener("change", tell);

const known = new Map();

// Neighbouring numbers get colours far apart; offline slots are grey.
export function ofGroup(id) {
  if (id === 0) return isDark() ? "rgb(70, 78, 88)" : "rgb(214, 219, 225)";
  const key = isDark() ? -id : id;
  let found = known.get(key);
  if (!found) {
    const hue = (id * 137.508 + 180) % 360;
    const light = (isDark() ? 48 : 55) + ((id * 7) % 4) * 5;
    found = rgb(hue, 62, light);
    known.set(key, found);
  }
  return found;
}

// What can be read on a group's colour.
export function onGroup(id) {
  const [red, green, blue] = ofGroup(id).match(/\d+/g).map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

// From nothing (0) to the most (1).
export function ofHeat(share) {
  if (share === null) return isDark() ? "rgb(48, 55, 64)" : "rgb(230, 233, 237)";
  const warm = Math.min(1, Math.max(0, share));
  return rgb(220 - 205 * warm, 45 + 45 * warm, isDark() ? 22 + 38 * warm : 90 - 42 * warm);
}

function rgb(hue, saturation, light) {
  const s = saturation / 100;
  const l = light / 100;
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return `rgb(${part(0)}, ${part(8)}, ${part(4)})`;
}
