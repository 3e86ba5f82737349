/** The board: moves by mouse, finger, pen or keys; markers and arrows. */

import { el } from "./dom.js";
import { lift, neighbour, parseSvg, placeName, places, shape, spot, stackHands } from "./svg.js";
import { t } from "./words.js";

export const DRAG_PIXELS = 6; // below, it is a click of an unsteady hand
export const NARROW_PIXELS = 520; // width of the board; below, the hands are drawn above and below it
export const DIRECTIONS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

export class Board {
  /**
   * @param {HTMLElement} root Where the drawing goes.
   * @param {HTMLElement} apart Where the buttons go of moves that no place of the drawing stands for: a pass, a roll of dice.
   * @param {Object} page `choose(moves, anchor) -> Promise<move|null>` asks which of several moves is meant;
   *   `cancel()` takes back the move that waits; `move(move)` receives the move that was made, `say(text)` what to announce, `words()` what the game says, in the page's language;
   *   `write(move)` a move's text for people.
   */
  constructor(root, apart, page) {
    this.root = root;
    this.apart = apart;
    this.resumed = null; // text of the button of `apart` that was pressed, until there are buttons again
    this.page = page;
    this.focused = null; // number of the place that the Tab key reaches
    this.picked = null;
    this.drag = null;
    this.lines = [];
    this.notes = new Map(); // arrows and rings that a person drew, by their places
    this.noted = null; // where the right button went down
    this.pointed = false; // the focus came here by a click, not by keys
    root.addEventListener("pointerdown", (event) => this.#press(event));
    root.addEventListener("pointermove", (event) => this.#pull(event));
    root.addEventListener("pointerup", (event) => this.#release(event));
    root.addEventListener("pointercancel", () => this.#drop());
    root.addEventListener("contextmenu", (event) => { if (event.target.closest("[data-place]")) event.preventDefault(); });
    // A finger on a piece that can move drags it; elsewhere on the board it scrolls the page. Browsers ignore
    // touch-action inside a drawing.
    root.addEventListener("touchstart", (event) => {
      if (event.target.closest(".can-move")) event.preventDefault();
    }, { passive: false });
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focusin", (event) => this.#focus(event));
    root.addEventListener("focusout", (event) => {
      if (!root.contains(event.relatedTarget)) this.pointed = false;
      this.#mark();
    });
  }

  /**
   * Show a position of `/api/position`; `playable` says whether its moves may be made here, `early` whether a move may be
   * entered before its turn: then any piece goes anywhere, and the move that is made is `{ahead: true, source, target}`.
   */
  show(position, { playable, early = false, fallsDown }) {
    const held = this.root.contains(document.activeElement);
    this.#drop();
    if (this.position?.text !== position.text) this.notes = new Map();
    this.position = position;
    this.fallsDown = fallsDown;
    this.playable = playable;
    this.svg = parseSvg(position.svg);
    this.svg.setAttribute("role", "presentation"); // screen readers skip the content of an image
    if (this.root.clientWidth < NARROW_PIXELS) stackHands(this.svg);
    this.root.replaceChildren(this.svg);
    this.places = places(this.svg);
    this.spots = new Map([...this.places].map(([number, place]) => [number, spot(this.svg, place)]));
    this.below = this.svg.appendChild(shape("g", { class: "markers", "pointer-events": "none", "aria-hidden": "true" }));
    this.above = this.svg.appendChild(shape("g", { class: "arrows", "pointer-events": "none", "aria-hidden": "true" }));
    this.moves = playable ? position.legal : early ? this.#anyMoves() : [];
    this.#label();
    this.#offer(playable && !position.drawn ? position.legal : []); // where chance decides, nobody chooses
    this.pick(null);
    this.arrows(this.lines);
    if (held && this.focused !== null) this.places.get(this.focused)?.focus({ preventScroll: true });
  }

  /** Draw a plan over the board: `{source, target, strength 0..1, number, hue}` for each imagined move. */
  arrows(lines) {
    this.lines = lines;
    if (!this.svg) return;
    const unit = this.#unit();
    const notes = [...this.notes.values()].map((note) => ({ ...note, strength: 0.7, hue: "note" }));
    this.above.replaceChildren(...[...lines, ...notes].flatMap((line) => this.#arrow(line, unit)));
  }

  /** Mark the places of a move that waits for its turn; null for none. */
  wait(ahead) {
    this.ahead = ahead;
    this.#mark();
  }

  /** Make the move of two places, if it is legal; whether it is. Where several are meant, the page asks. */
  make({ source, target }) {
    const found = source < 0 ? this.#onto(target) : this.#from(source).filter((move) => move.target === target);
    if (found.length) this.#play(found, target);
    return found.length > 0;
  }

  /** Every way to move a piece, or to put a stone where the game has nothing else, whatever the rules say. */
  #anyMoves() {
    const all = [...this.places.keys()];
    const stones = this.position.legal.every(({ source }) => source < 0);
    const sources = stones ? [-1] : all.filter((number) => this.places.get(number).querySelector(".gp-piece"));
    return sources.flatMap((source) => all.filter((target) => target !== source).map((target) => ({ ahead: true, source, target })));
  }

  /** Pick up the piece at a place (null puts it back) and show where it can go. */
  pick(number) {
    this.picked = number;
    this.root.classList.toggle("holding", number !== null);
    this.#mark();
  }

  /** Move the focus to the board, to the place that the Tab key reaches. */
  focus() {
    this.pointed = false;
    this.places?.get(this.focused)?.focus();
  }

  // ---- places ------------------------------------------------------------------------------------------------

  #unit() {
    return Math.min(...[...this.spots.values()].map((place) => place.width));
  }

  #label() {
    const words = this.page.words();
    for (const label of this.svg.querySelectorAll("text.gp-label")) label.textContent = words.of(label.textContent);
    const sources = new Set(this.moves.map((move) => (move.source < 0 ? move.target : move.source)));
    if (!this.places.has(this.focused)) this.focused = [...sources][0] ?? [...this.places.keys()][0] ?? null;
    for (const [number, place] of this.places) {
      place.setAttribute("role", "button");
      place.setAttribute("aria-label", words.place(placeName(place)));
      place.setAttribute("tabindex", number === this.focused ? "0" : "-1");
      place.classList.toggle("can-move", sources.has(number));
    }
  }

  /** A button for each of these moves that has neither source nor target on the board; the focus stays among them. */
  #offer(moves) {
    const focused = document.activeElement;
    if (this.apart.contains(focused)) this.resumed = focused.textContent;
    const buttons = moves.filter(({ source, target }) => !this.places.has(source) && !this.places.has(target))
      .map((move) => el("button", { type: "button", text: this.page.write(move), on: { click: () => this.page.move(move) } }));
    this.apart.hidden = !buttons.length;
    this.apart.replaceChildren(...buttons);
    if (!buttons.length || this.resumed === null) return;
    if (document.activeElement === document.body) (buttons.find(({ textContent }) => textContent === this.resumed) ?? buttons[0]).focus();
    this.resumed = null;
  }

  #targets() {
    return this.picked === null ? [] : [...new Set(this.#from(this.picked).map((move) => move.target))];
  }

  #from(source) {
    return this.moves.filter((move) => move.source === source);
  }

  /** Moves that put a new stone on a place. In a game where stones fall, any place stands for its column. */
  #onto(number) {
    const straight = this.moves.filter((move) => move.source < 0 && move.target === number);
    if (straight.length || !this.fallsDown) return straight;
    const here = this.spots.get(number);
    return this.moves.filter((move) => Math.abs(this.spots.get(move.target).x - here.x) < here.width / 2);
  }

  #mark() {
    if (!this.svg) return;
    const marks = [];
    for (const [number, place] of this.places) place.setAttribute("aria-pressed", String(number === this.picked));
    const box = (number, name, inset = 0) => {
      const { x, y, width, height } = this.spots.get(number);
      const [w, h] = [width - 2 * inset, height - 2 * inset];
      return shape("rect", { class: name, x: x - w / 2, y: y - h / 2, width: w, height: h, rx: width * 0.06 });
    };
    if (this.picked !== null) marks.push(box(this.picked, "mark-picked"));
    for (const number of this.ahead ? [this.ahead.source, this.ahead.target] : []) {
      if (this.spots.has(number)) marks.push(box(number, "mark-ahead"));
    }
    for (const number of this.playable ? this.#targets() : []) {
      const { x, y, width } = this.spots.get(number);
      marks.push(shape("circle", { class: "mark-target", cx: x, cy: y, r: width * 0.17 }));
    }
    const on = document.activeElement?.closest?.("[data-place]");
    if (on && this.root.contains(on) && on.matches(":focus-visible")) {
      marks.push(box(Number(on.dataset.place), "mark-focus", this.#unit() * 0.03));
    }
    this.below.replaceChildren(...marks);
  }

  #arrow({ source, target, strength, number, hue, reply, wrong, guess }, unit) {
    const end = this.spots.get(target);
    if (!end) return [];
    const start = this.spots.get(source);
    const kind = `plan hue-${hue}${reply ? " reply" : ""}${guess ? " guess" : wrong ? " wrong" : ""}`;
    const group = shape("g", { opacity: (0.35 + 0.6 * strength).toFixed(2) });
    let badge = { x: end.x + unit * 0.3, y: end.y - unit * 0.3 };
    if (start) {
      const length = Math.hypot(end.x - start.x, end.y - start.y);
      const [ux, uy] = [(end.x - start.x) / length, (end.y - start.y) / length];
      const [wide, head] = [unit * (0.05 + 0.06 * strength), unit * 0.3];
      const at = (along, across) => `${start.x + ux * along - uy * across},${start.y + uy * along + ux * across}`;
      const [from, neck] = [unit * 0.22, length - head - unit * 0.1];
      const outline = [at(from, -wide), at(neck, -wide), at(neck, -head * 0.6), at(length - unit * 0.1, 0),
        at(neck, head * 0.6), at(neck, wide), at(from, wide)];
      group.append(shape("polygon", { points: outline.join(" ") }));
      const middle = from + 0.42 * (neck - from);
      badge = { x: start.x + ux * middle, y: start.y + uy * middle };
    } else {
      for (const [name, width] of [["rim", 0.12], ["ring", 0.08]]) {
        group.append(shape("circle", { class: name, cx: end.x, cy: end.y, r: unit * 0.36, "stroke-width": unit * width }));
      }
    }
    if (number === undefined) return [shape("g", { class: kind }, group)];
    const text = shape("text", { ...badge, "font-size": unit * 0.22, dy: "0.36em", "text-anchor": "middle" });
    text.textContent = String(number);
    const disc = shape("circle", { class: "disc", cx: badge.x, cy: badge.y, r: unit * 0.16 });
    return [shape("g", { class: kind }, group, disc, text)];
  }

  // ---- pointer -------------------------------------------------------------------------------------------------

  #under(event) {
    const hit = document.elementFromPoint(event.clientX, event.clientY)?.closest?.("[data-place]");
    return hit && this.root.contains(hit) ? Number(hit.dataset.place) : null;
  }

  /** The right button: an arrow between two places, or a ring on one; again, to take it away. */
  #note(from, to) {
    const key = `${from} ${to}`;
    if (!this.notes.delete(key)) this.notes.set(key, { source: from === to ? -1 : from, target: to });
    this.arrows(this.lines);
  }

  #press(event) {
    this.pointed = true;
    const number = this.#under(event);
    if (event.button === 2 && this.ahead) return this.page.cancel();
    if (event.button === 2 && !this.drag) this.noted = number;
    if (event.button !== 0 || this.drag) return undefined;
    if (this.notes.size) {
      this.notes.clear();
      this.arrows(this.lines);
    }
    if (number === null) return undefined;
    const fresh = this.picked !== number && this.#from(number).length > 0 && !this.#targets().includes(number);
    this.drag = { number, fresh, x: event.clientX, y: event.clientY, ghost: null, id: event.pointerId };
    this.#turnTo(number);
    this.root.setPointerCapture(event.pointerId); // a button that is let go beside the board must end this press, too
    if (fresh) this.pick(number);
    return undefined;
  }

  #pull(event) {
    const drag = this.drag;
    if (!drag || event.pointerId !== drag.id || this.picked !== drag.number) return;
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.ghost && Math.hypot(dx, dy) < DRAG_PIXELS) return;
    drag.ghost ??= lift(this.svg, this.places.get(drag.number));
    const scale = this.svg.getScreenCTM().a;
    drag.ghost.setAttribute("transform", `translate(${dx / scale} ${dy / scale})`);
  }

  #release(event) {
    if (event.button === 2 && this.noted !== null) {
      const to = this.#under(event);
      if (to !== null) this.#note(this.noted, to);
      this.noted = null;
      return;
    }
    const drag = this.drag;
    if (!drag || event.pointerId !== drag.id) return;
    const number = this.#under(event);
    const dragged = drag.ghost !== null;
    this.#drop();
    if (number === null) return this.pick(null);
    if (!dragged && number === drag.number && drag.fresh) return this.#hold(number);
    if (dragged && number === drag.number) return this.pick(null);
    return this.#choose(number);
  }

  #drop() {
    if (!this.drag) return;
    this.drag.ghost?.remove();
    this.places.get(this.drag.number)?.classList.remove("lifted");
    this.drag = null;
  }

  // ---- choosing ----------------------------------------------------------------------------------------------------

  /** Click or Enter on a place: finish a move, pick a piece up, put a new stone down, or let go. */
  #choose(number) {
    const finished = this.picked === null ? [] : this.#from(this.picked).filter((move) => move.target === number);
    if (finished.length) return this.#play(finished, number);
    if (number !== this.picked && this.#from(number).length) {
      this.pick(number);
      return this.#hold(number);
    }
    const placed = this.#onto(number);
    if (placed.length) return this.#play(placed, number);
    if (this.picked !== null) this.page.say(t("board.back"));
    else if (this.moves.length) this.page.say(t("board.nothing", { place: placeName(this.places.get(number)) }));
    this.pick(null);
  }

  #hold(number) {
    if (this.playable) this.page.say(t("board.picked", { place: placeName(this.places.get(number)), count: this.#targets().length }));
  }

  async #play(moves, number) {
    const move = moves.length === 1 ? moves[0] : await this.page.choose(moves, this.places.get(number));
    this.pick(null);
    if (move) this.page.move(move);
  }

  // ---- keys --------------------------------------------------------------------------------------------------------

  #focus(event) {
    const place = event.target.closest("[data-place]");
    if (place) this.#turnTo(Number(place.dataset.place));
    this.#mark();
  }

  #turnTo(number) {
    this.places.get(this.focused)?.setAttribute("tabindex", "-1");
    this.focused = number;
    this.places.get(number)?.setAttribute("tabindex", "0");
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const on = event.target.closest("[data-place]");
    if (!on) return;
    const number = Number(on.dataset.place);
    if (event.key in DIRECTIONS) {
      if (this.pointed && /Left|Right/.test(event.key)) return; // they go through the moves
      this.pointed = false;
      const next = neighbour(this.spots, number, DIRECTIONS[event.key]);
      if (next !== null) this.places.get(next).focus({ preventScroll: true });
    } else if (event.key === "Enter" || event.key === " ") this.#choose(number);
    else if (event.key === "Escape" && this.picked !== null) this.#choose(this.picked);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
