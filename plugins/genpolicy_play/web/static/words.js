/** The page's words in the reader's language: one table for each, with the same keys. */

import en from "./words-en.js";
import ja from "./words-ja.js";

const TABLES = { en, ja };
const KEY = "genpolicy.language";

/** The language of the page: the one that was chosen on it, else the browser's first one that has a table. */
export const language = chosen();

/** The languages of the page by code, each by its own name. */
export const languages = Object.entries(TABLES).map(([code, table]) => ({ code, name: table.language }));

/** Remember another language and show the page in it. */
export function speak(code) {
  try {
    localStorage.setItem(KEY, code);
  } catch (error) {
    console.warn("this browser does not store the language:", error);
  }
  location.reload();
}

/**
 * Words of the table, with `{name}` replaced by values. A key with ".one" beside it has another form for a count of 1.
 *
 * @param {string} key
 * @param {Object} [values]
 */
export function t(key, values = {}) {
  const form = values.count === 1 && `${key}.one` in TABLES[language] ? `${key}.one` : key;
  const text = TABLES[language][form];
  if (text === undefined) throw new Error(`the page has no words for ${form}`);
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/** Put the table's words into what the markup marks: `data-t` for the text, `data-t-NAME` for an attribute. */
export function translate() {
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const [mark, name] of [["title", "title"], ["label", "aria-label"], ["empty", "data-empty"]]) {
    for (const node of document.querySelectorAll(`[data-t-${mark}]`)) node.setAttribute(name, t(node.getAttribute(`data-t-${mark}`)));
  }
}

/** Translates what a game says in English: its title, players, endings, pieces; what it does not translate stays. */
export class GameWords {
  /** @param {Object} game As `/api/offers` describes it. */
  constructor(game) {
    this.table = new Map(Object.entries(game?.words?.[language] ?? {}));
  }

  of(text) {
    return this.table.get(text) ?? text;
  }

  /** The name of a place, such as "e8 white king" or "black gold in hand: 2". */
  place(name) {
    const held = /^(.*) in hand: (.*)$/.exec(name);
    if (held) return t("place.hand", { piece: this.of(held[1]), count: this.of(held[2]) });
    const [there, ...piece] = name.split(" ");
    const square = [...there].map((letter) => this.of(letter)).join("");
    return piece.length ? t("place.square", { square, piece: this.of(piece.join(" ")) }) : name;
  }
}

function chosen() {
  let stored = null;
  try {
    stored = localStorage.getItem(KEY);
  } catch (error) {
    console.warn("the stored language cannot be read:", error);
  }
  const wanted = [stored, ...navigator.languages.map((each) => each.split("-")[0])];
  return wanted.find((code) => code in TABLES) ?? "en";
}
