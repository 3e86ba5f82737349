/** What the page remembers over a reload of the tab: the game, who plays, which policies are shown. */

const KEY = "genpolicy.page";

/** A fresh session: the first game on offer, a person with the first move, its first policy on the other side. */
export function fresh(offers) {
  const dreaming = offers.policies.find((policy) => policy.dreams) ?? offers.policies[0];
  const game = dreaming?.game ?? offers.games[0].spec;
  return {
    game,
    start: null, // text of the first position; null: the usual one
    moves: [], // protocol texts, the whole line
    labels: [], // the same as people write them, as far as they were shown
    turns: [], // who moves at each ply as far as it was shown: 0, 1, or null where chance decides
    ply: 0, // how many of them are on the board
    sides: [HUMAN, dreaming ? dreaming.id : HUMAN],
    flip: false,
    watched: dreaming ? [dreaming.id] : [],
    options: {}, // policy id -> {option: value}
    seed: 1,
    always: false, // analyse on a person's turn too
    held: false, // policies wait until "Let it move"
    former: null, // the line that the last move replaced: {moves, labels, turns, ply, spent}
    clock: null, // {base, increment, byoyomi} in milliseconds; null: none
    spent: [], // [player, milliseconds] of each ply; null where it was not timed
    source: null, // of a game that was opened: {line, players, result, date}
    since: null, // when the time of the move being thought about began to run; null: it stands
    arrows: true,
    codes: null, // moves in protocol notation: true, false, or null for where the browser cannot show the usual one
    shortcuts: true,
    sounds: false,
    theme: "auto",
  };
}

export const HUMAN = "human";

/** The policy shown where nobody has chosen: the game's first one that dreams, else its first one. */
export function beginner(offers, game) {
  const own = offers.policies.filter((policy) => policy.game === game);
  const first = own.find((policy) => policy.dreams) ?? own[0];
  return first ? [first.id] : [];
}

/** The session of this tab, the position that the address names, or a fresh session, without what is not offered. */
export function restore(offers) {
  const state = { ...fresh(offers), ...saved() };
  const named = addressed(offers);
  Object.assign(state, named);
  state.options = known(state.options, offers);
  const games = new Set(offers.games.map((game) => game.spec));
  if (!games.has(state.game)) Object.assign(state, { ...fresh(offers), theme: state.theme });
  tidy(state, offers);
  if (named.game && !state.watched.length) state.watched = beginner(offers, state.game);
  return state;
}

/** The chosen options that are offered: a server that was started again may offer others. */
function known(options, offers) {
  return Object.fromEntries(offers.policies.map(({ id, options: offered }) => {
    const chosen = options[id] ?? {};
    return [id, Object.fromEntries(offered.flatMap(({ name }) => (name in chosen ? [[name, chosen[name]]] : [])))];
  }));
}

/** Remove from the state what its game does not offer. */
export function tidy(state, offers) {
  const ids = new Set(offers.policies.filter((policy) => policy.game === state.game).map((policy) => policy.id));
  state.watched = [...new Set(state.watched)].filter((id) => ids.has(id));
  state.sides = state.sides.map((side) => (ids.has(side) ? side : HUMAN));
  for (const side of state.sides) if (side !== HUMAN && !state.watched.includes(side)) state.watched.push(side);
  state.ply = Math.max(0, Math.min(state.ply, state.moves.length));
  return state;
}

/** Store the state for a reload, and the position in the address, so that it can be shared. */
export function keep(state) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(state));
  } catch (error) {
    console.warn("this browser stores no session:", error); // the page works, but forgets at a reload
  }
  const parts = new URLSearchParams({ game: state.game });
  if (state.start) parts.set("start", state.start);
  if (state.ply) parts.set("moves", state.moves.slice(0, state.ply).join(" "));
  history.replaceState(null, "", `#${parts}`);
}

function saved() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    return stored && typeof stored === "object" && Array.isArray(stored.moves) ? stored : {};
  } catch (error) {
    console.warn("the stored session cannot be read and is ignored:", error);
    return {};
  }
}

/** The state that the address names; {} where it names the stored session's position. */
function addressed(offers) {
  const parts = new URLSearchParams(location.hash.slice(1));
  const game = parts.get("game");
  if (!offers.games.some((offered) => offered.spec === game)) return {};
  const moves = (parts.get("moves") ?? "").split(" ").filter(Boolean);
  const start = parts.get("start");
  const before = saved();
  const same = before.game === game && (before.start ?? null) === start
    && moves.join(" ") === (before.moves ?? []).slice(0, before.ply).join(" ");
  return same ? {} : { game, start, moves, labels: [], turns: [], ply: moves.length, sides: [HUMAN, HUMAN], flip: false, held: false, former: null, clock: null, spent: [], since: null, source: null };
}
