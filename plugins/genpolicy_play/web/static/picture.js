/** A picture of what a column shows, drawn here: the browser makes a PNG of the drawings that the server sent. */

import { download, el } from "./dom.js";

const [WIDTH, MARGIN, GAP, HEAD] = [1200, 32, 24, 96]; // pixels
const ROOT = 520; // width of the position
const CAPTION = 34; // height below an imagined board
const MOST_BESIDE = 4; // imagined boards in a row
const DARK = "#23262d";
const FAINT = "#5c6069";

/**
 * Save a title, a position and imagined boards as one picture.
 *
 * @param {{title: string, under: string, root: string, boards: {svg: string, caption: string}[]}} shown
 * @param {string} name The file's name without its end.
 */
export async function savePicture(shown, name) {
  const root = await image(shown.root);
  const boards = await Promise.all(shown.boards.map(async ({ svg, caption }) => ({ caption, drawn: await image(svg) })));
  const rootHeight = (ROOT * root.height) / root.width;
  const { beside, future, boardHeight } = grid(boards.map(({ drawn }) => drawn.height / drawn.width), rootHeight);
  const height = HEAD + Math.max(rootHeight, Math.ceil(boards.length / beside) * boardHeight) + MARGIN;
  const canvas = el("canvas", { width: WIDTH, height: Math.ceil(height) });
  const pen = canvas.getContext("2d");
  const font = getComputedStyle(document.documentElement).fontFamily;
  const write = (text, x, y, size, colour, weight = "", room = WIDTH - x - MARGIN) => {
    pen.font = `${weight} ${size}px ${font}`;
    pen.fillStyle = colour;
    pen.fillText(text, x, y, room);
  };
  pen.fillStyle = "#fffefb";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  write(shown.title, MARGIN, 44, 28, DARK, "bold");
  write(shown.under, MARGIN, 74, 17, FAINT);
  pen.drawImage(root, MARGIN, HEAD, ROOT, rootHeight);
  boards.forEach(({ drawn, caption }, index) => {
    const x = MARGIN + ROOT + GAP + (index % beside) * (future + GAP);
    const y = HEAD + Math.floor(index / beside) * boardHeight;
    pen.drawImage(drawn, x, y, future, (future * drawn.height) / drawn.width);
    write(caption, x, y + boardHeight - 14, 15, FAINT, "", future);
  });
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  download(blob, `${name}.png`);
}

/** The fewest imagined boards in a row, and so the largest, that are no higher than the position beside them. */
function grid(ratios, rootHeight) {
  const ratio = Math.max(1, ...ratios);
  for (let beside = 1; ; beside += 1) {
    const future = Math.min(ROOT, (WIDTH - 2 * MARGIN - ROOT) / beside - GAP);
    const boardHeight = future * ratio + CAPTION;
    const fits = Math.ceil(ratios.length / beside) * boardHeight <= rootHeight + 2 * CAPTION;
    if (fits || beside === MOST_BESIDE) return { beside, future, boardHeight };
  }
}

/** A drawing as an image with its size, which not every browser reads off a viewBox. */
async function image(text) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  const [, , width, height] = root.getAttribute("viewBox").split(/[ ,]+/).map(Number);
  root.setAttribute("width", String(width));
  root.setAttribute("height", String(height));
  const drawn = new Image(width, height);
  drawn.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(root))}`;
  await drawn.decode();
  return drawn;
}
