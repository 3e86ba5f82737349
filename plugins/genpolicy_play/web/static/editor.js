/** Setting up a position: pieces from a palette, by mouse, finger or keys; the server draws it and judges it. */

import { edited, Trouble } from "./api.js";
import { DIRECTIONS, DRAG_PIXELS, NARROW_PIXELS } from "./board.js";
import { byId, el } from "./dom.js";
import { lift, neighbour, parseSvg, placeName, places, spot, stackHands } from "./svg.js";
import { GameWords, t } from "./words.js";

export class Editor {
  /** @param {(text: string) => void} use Receives the text of a position that a person has set up. */
  constructor(use) {
    this.use = use;
    this.dialog = byId("edit");
    this.root = byId("edit-board");
    this.drag = null;
    const click = (id, act) => byId(id).addEventListener("click", act);
    click("edit-clear", () => this.#set(this.offer.clear));
    click("edit-usual", () => this.#set(this.offer.usual));
    click("edit-flip", () => { this.flip = !this.flip; this.#set(this.cells); });
    byId("edit-form").addEventListener("submit", (event) => this.#done(event));
    this.root.addEventListener("pointerdown", (event) => this.#press(event));
    this.root.addEventListener("pointermove", (event) => this.#pull(event));
    this.root.addEventListener("pointerup", (event) => this.#release(event));
    this.root.addEventListener("pointercancel", () => this.#drop());
    this.root.addEventListener("touchstart", (event) => { if (event.target.closest(".can-move")) event.preventDefault(); }, { passive: false });
    this.root.addEventListener("keydown", (event) => this.#key(event));
    this.root.addEventListener("focusin", (event) => { this.focused = Number(event.target.closest("[data-place]")?.dataset.place ?? this.focused); });
  }

  /** Begin with a position of a game. */
  async open(game, start, flip) {
    Object.assign(this, { game, words: new GameWords(game), flip, focused: null });
    this.offer = await edited({ game: game.spec, start, flip });
    this.chosen = this.offer.pieces.find(({ symbol }) => symbol !== this.offer.empty).symbol;
    byId("edit-flip").hidden = game.spec.includes("gravity=true");
    byId("edit-pieces").replaceChildren(...this.offer.pieces.map((piece) => this.#piece(piece)));
    this.dialog.showModal();
    this.#show(this.offer);
    byId("edit-pieces").querySelector(":checked").focus();
  }

  #piece({ symbol, name, svg }) {
    const said = this.words.of(name);
    const field = el("input", { type: "radio", name: "edit-piece", value: symbol, checked: symbol === this.chosen, "aria-label": said,
      on: { change: () => { this.chosen = symbol; } } });
    const picture = el("span", { class: "picture", "aria-hidden": "true" }, symbol === this.offer.empty ? "×" : parseSvg(svg));
    return el("label", { title: said }, field, picture);
  }

  /** Show a position as the server answered it. */
  #show({ cells, svg, text, wrong }) {
    Object.assign(this, { cells: [...cells], text });
    const held = this.root.contains(document.activeElement);
    this.#drop();
    this.svg = parseSvg(svg);
    this.svg.setAttribute("role", "presentation");
    if (this.root.clientWidth < NARROW_PIXELS) stackHands(this.svg);
    this.root.replaceChildren(this.svg);
    this.places = places(this.svg);
    this.spots = new Map([...this.places].map(([number, place]) => [number, spot(this.svg, place)]));
    if (!this.places.has(this.focused)) [this.focused] = this.places.keys();
    for (const label of this.svg.querySelectorAll("text.gp-label")) label.textContent = this.words.of(label.textContent);
    for (const [number, place] of this.places) {
      place.setAttribute("role", "button");
      place.setAttribute("aria-label", this.words.place(placeName(place)));
      place.setAttribute("tabindex", number === this.focused ? "0" : "-1");
      place.classList.toggle("can-move", this.#holds(number));
    }
    if (held) this.places.get(this.focused).focus({ preventScroll: true });
    byId("edit-facts").replaceChildren(...this.offer.facts.flatMap((fact) => this.#fact(fact)));
    byId("edit-error").textContent = wrong ? t("edit.wrong", { reason: wrong.split("; ").map((each) => this.words.of(each)).join("; ") }) : "";
    byId("edit-use").disabled = Boolean(wrong);
  }

  #fact({ place, label, choices }) {
    const id = `edit-fact-${place}`;
    const field = el("select", { id, on: { change: () => this.#put(place, field.value) } },
      ...choices.map(({ symbol, name }) => el("option", { value: symbol, text: this.words.of(name) })));
    field.value = this.cells[place];
    return el("span", { class: "pair" }, el("label", { for: id, text: this.words.of(label) }), field);
  }

  /** Whether a square has a piece. */
  #holds(number) {
    return !(number in this.offer.hands) && this.cells[number] !== this.offer.empty;
  }

  /** Show other symbols. Where several answers are under way, the last question counts. */
  async #set(cells) {
    this.cells = [...cells];
    const asked = this.asked = Symbol("question");
    byId("edit-use").disabled = true; // until the answer says that this is a position
    try {
      const answer = await edited({ game: this.game.spec, cells: this.cells, flip: this.flip });
      if (asked === this.asked) this.#show(answer);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      byId("edit-error").textContent = error.message;
    }
  }

  #put(number, symbol) {
    const cells = [...this.cells];
    cells[number] = symbol;
    return this.#set(cells);
  }

  /** Put the chosen piece on a square, or take it away where it stands already; one more in a hand. */
  #choose(number) {
    const counts = this.offer.hands[number];
    if (counts) return this.#put(number, counts[(counts.indexOf(this.cells[number]) + 1) % counts.length]);
    return this.#put(number, this.cells[number] === this.chosen ? this.offer.empty : this.chosen);
  }

  // ---- pointer and keys ------------------------------------------------------------------------------------------

  #under({ clientX, clientY }) {
    const hit = document.elementFromPoint(clientX, clientY)?.closest("[data-place]");
    return hit && this.root.contains(hit) ? Number(hit.dataset.place) : null;
  }

  #press(event) {
    const number = this.#under(event);
    if (event.button !== 0 || this.drag || number === null) return;
    this.drag = { number, x: event.clientX, y: event.clientY, ghost: null, id: event.pointerId };
    this.focused = number;
    this.root.setPointerCapture(event.pointerId); // a button that is let go beside the board must end this press, too
  }

  #pull(event) {
    const { drag } = this;
    if (!drag || event.pointerId !== drag.id || !this.#holds(drag.number)) return;
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.ghost && Math.hypot(dx, dy) < DRAG_PIXELS) return;
    drag.ghost ??= lift(this.svg, this.places.get(drag.number));
    const scale = this.svg.getScreenCTM().a;
    drag.ghost.setAttribute("transform", `translate(${dx / scale} ${dy / scale})`);
  }

  #release(event) {
    const { drag } = this;
    if (!drag || event.pointerId !== drag.id) return;
    const number = this.#under(event);
    this.#drop();
    if (!drag.ghost) {
      if (number === drag.number) this.#choose(number);
      return;
    }
    const cells = [...this.cells];
    cells[drag.number] = this.offer.empty; // outside the board: it goes away
    if (number !== null && !(number in this.offer.hands)) cells[number] = this.cells[drag.number];
    this.#set(cells);
  }

  #drop() {
    this.drag?.ghost?.remove();
    if (this.drag) this.places.get(this.drag.number)?.classList.remove("lifted");
    this.drag = null;
  }

  #key(event) {
    const on = event.target.closest("[data-place]");
    if (!on || event.altKey || event.ctrlKey || event.metaKey) return;
    const number = Number(on.dataset.place);
    if (event.key in DIRECTIONS) {
      const next = neighbour(this.spots, number, DIRECTIONS[event.key]);
      if (next !== null) {
        on.setAttribute("tabindex", "-1");
        this.places.get(next).setAttribute("tabindex", "0");
        this.places.get(next).focus({ preventScroll: true });
      }
    } else if (event.key === "Enter" || event.key === " ") this.#choose(number);
    else if (event.key === "Delete" || event.key === "Backspace") this.#put(number, this.offer.hands[number]?.[0] ?? this.offer.empty);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #done(event) {
    event.preventDefault();
    if (byId("edit-use").disabled) return;
    this.dialog.close();
    this.use(this.text);
  }
}
