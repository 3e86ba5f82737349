/** SVG drawn by the server: parsing it, and where its squares are. */

import { t } from "./words.js";

export const SVG = "http://www.w3.org/2000/svg";
const UNWANTED = new Set(["script", "foreignobject", "iframe", "image", "style", "animate", "set"]);

/**
 * The elements of an SVG text, without anything that could run, load or restyle the page. The server escapes what it
 * draws; this is a second line of defence.
 */
export function parseSvg(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.nodeName !== "svg") throw new Error("the server sent a drawing that is not an SVG");
  for (const node of [root, ...root.querySelectorAll("*")]) {
    if (UNWANTED.has(node.localName.toLowerCase())) {
      node.remove();
      continue;
    }
    for (const { name, value } of [...node.attributes]) {
      const outside = /href$/i.test(name) && !value.startsWith("#");
      if (outside || /^on/i.test(name) || name === "style") node.removeAttribute(name);
    }
  }
  root.removeAttribute("width");
  root.removeAttribute("height");
  return document.importNode(root, true);
}

/** An SVG element with attributes. */
export function shape(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** The places of a drawn board by number: squares and hand slots. */
export function places(svg) {
  const found = new Map();
  for (const node of svg.querySelectorAll("[data-place]")) {
    const number = Number(node.dataset.place);
    if (!found.has(number)) found.set(number, node);
  }
  return found;
}

/** Middle, width and height of a place, in units of the drawing's viewBox. */
export function spot(svg, place) {
  const body = place.matches("rect") ? place : place.querySelector("rect") ?? place;
  const box = body.getBBox();
  const matrix = svg.getScreenCTM().inverse().multiply(body.getScreenCTM());
  const corner = (x, y) => new DOMPoint(x, y).matrixTransform(matrix);
  const [a, b] = [corner(box.x, box.y), corner(box.x + box.width, box.y + box.height)];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, width: Math.abs(b.x - a.x), height: Math.abs(b.y - a.y) };
}

/** The edges of a drawing's rectangles of a class, in its own units; null where it has none. */
function edges(svg, name) {
  const boxes = [...svg.querySelectorAll(name)].map((rect) => ["x", "y", "width", "height"].map((side) => Number(rect.getAttribute(side))));
  if (!boxes.length) return null;
  const [left, top] = [0, 1].map((at) => Math.min(...boxes.map((box) => box[at])));
  const [right, bottom] = [0, 1].map((at) => Math.max(...boxes.map((box) => box[at] + box[at + 2])));
  return { left, top, right, bottom };
}

/** Cut a drawing down to its squares and hands: a small one needs no names around it. */
export function trim(svg) {
  const all = edges(svg, ".gp-square, .gp-slot");
  if (all) svg.setAttribute("viewBox", `${all.left - 3} ${all.top - 3} ${all.right - all.left + 6} ${all.bottom - all.top + 6}`);
}

/** For narrow screens: move the hands above and below the board, where they take no width from the squares. */
export function stackHands(svg) {
  const board = edges(svg, ".gp-square");
  const slots = [...svg.querySelectorAll(".gp-place:has(> .gp-slot)")];
  if (!slots.length || !board) return;
  const [size, name] = [(board.bottom - board.top) / 9, 45]; // of a hand's row, of the names beside the board
  for (const above of [true, false]) {
    const hand = slots.filter((slot) => Number(slot.firstChild.getAttribute("x")) < board.left === above);
    const wide = (board.right - board.left) / hand.length;
    hand.forEach((slot, index) => {
      const [x, y] = ["x", "y"].map((side) => Number(slot.firstChild.getAttribute(side)));
      const at = [board.left + index * wide, above ? board.top - name - size : board.bottom + 8];
      slot.setAttribute("transform", `translate(${at[0] - x} ${at[1] - y})`);
    });
  }
  const [width, height] = [board.right - board.left + name + 6, board.bottom - board.top + 2 * size + name + 12];
  svg.setAttribute("viewBox", `${board.left - 4} ${board.top - name - size} ${width} ${height}`);
}

/** A copy of a place's piece that follows the pointer, above everything else. */
export function lift(svg, place) {
  const matrix = svg.getScreenCTM().inverse().multiply(place.parentNode.getScreenCTM());
  const copy = place.cloneNode(true);
  for (const name of ["data-place", "tabindex", "role", "aria-label"]) copy.removeAttribute(name);
  for (const ground of copy.querySelectorAll("rect, circle.gp-check, .gp-label")) if (!ground.closest("use")) ground.remove();
  const frame = shape("g", { transform: `matrix(${matrix.a} ${matrix.b} ${matrix.c} ${matrix.d} ${matrix.e} ${matrix.f})` }, copy);
  const ghost = shape("g", { class: "ghost", "pointer-events": "none", "aria-hidden": "true" }, frame);
  place.classList.add("lifted");
  return svg.appendChild(ghost);
}

/** The nearest place in a direction; hands are reached like squares, as they lie beside the board. */
export function neighbour(spots, number, [dx, dy]) {
  const here = spots.get(number);
  let best = null;
  let least = Infinity;
  for (const [other, there] of spots) {
    const along = (there.x - here.x) * dx + (there.y - here.y) * dy;
    const across = Math.abs((there.x - here.x) * dy) + Math.abs((there.y - here.y) * dx);
    const cost = along + 3 * across;
    if (along > here.width * 0.3 && across <= along * 1.5 && cost < least) [best, least] = [other, cost];
  }
  return best;
}

/** The name of a place, for screen readers. */
export function placeName(place) {
  const title = place.querySelector(":scope > title")?.textContent;
  return place.getAttribute("aria-label") ?? title ?? t("place.number", { number: place.dataset.place });
}
