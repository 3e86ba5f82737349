/** Builds and finds elements. Text from outside only becomes text: nothing here parses HTML. */

/**
 * An element with properties, attributes and children.
 *
 * @param {string} tag
 * @param {Object} [props] `class`, `text`, `on: {event: listener}`, `vars: {"--name": value}`; `aria-*`, `data-*`,
 *   `role`, `for` and `list` become attributes, everything else properties. `null` and `undefined` are left out.
 * @param {...(Node|string|null)} children
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "vars") for (const [key, set] of Object.entries(value)) node.style.setProperty(key, set);
    else if (/^(aria-|data-)|^(role|for|list)$/.test(name)) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Save bytes as a file of this name. */
export function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The element with this id; a missing one is a bug of the page. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return found;
}

/** 0.1234 as "12 %": whole from ten per cent on, one digit below it. */
export function percent(share) {
  const hundred = 100 * share;
  return `${hundred >= 9.95 || hundred < 0.05 ? Math.round(hundred) : hundred.toFixed(1)} %`;
}

const shown = new Map();

/** Whether this browser can draw a text: a font draws the same box for all letters that it lacks. */
export function canShow(text) {
  const far = [...text].filter((letter) => letter >= "\u2e80").slice(0, 1).join("");
  if (!far) return true;
  if (!shown.has(far)) shown.set(far, picture(far) !== picture("\u{10ffff}"));
  return shown.get(far);
}

function picture(letter) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [24, 24];
  const pen = canvas.getContext("2d");
  pen.font = `20px ${getComputedStyle(document.body).fontFamily}`;
  pen.fillText(letter, 2, 20);
  return canvas.toDataURL();
}

/** Whether the page is dark, by its own switch or by the system's. */
export const isDark = () => (document.documentElement.dataset.theme === "auto"
  ? matchMedia("(prefers-color-scheme: dark)").matches : document.documentElement.dataset.theme === "dark");

/** Whether the system is set to less motion. */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
