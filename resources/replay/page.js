// Replays conversations about images: each turn shows its boxes and its mask on the image. All texts are set as text.
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const PAUSE = 2500; // ms that a turn is shown while the conversation plays
let at = 0;
let turn = 0;
let timer = null;

function drawn(name, values) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
  return made;
}

function boxesOf(boxes, kind, shown) {
  return boxes.map(([x1, y1, x2, y2]) => drawn('rect', {
    x: x1 * shown.width, y: y1 * shown.height, width: (x2 - x1) * shown.width, height: (y2 - y1) * shown.height, class: kind,
  }));
}

function drawImage() {
  const shown = data.cases[at];
  const image = byId('image');
  image.setAttribute('viewBox', `0 0 ${shown.width} ${shown.height}`);
  const now = shown.turns[turn];
  const parts = [drawn('image', { href: shown.picture, width: shown.width, height: shown.height })];
  if (now.mask) parts.push(drawn('image', { href: now.mask, width: shown.width, height: shown.height, class: 'mask' }));
  const before = shown.turns.slice(0, turn).flatMap((one) => one.boxes);
  parts.push(...boxesOf(before, 'before', shown), ...boxesOf(now.right, 'right', shown), ...boxesOf(now.boxes, 'now', shown));
  const size = shown.height / 28;
  shown.sides.forEach((side, place) => {
    const text = drawn('text', { x: place ? shown.width - size : size * 0.3, y: size * 1.1, 'font-size': size });
    text.textContent = side;
    parts.push(text);
  });
  image.replaceChildren(...parts);
  image.setAttribute('aria-label', `${shown.title}, ${now.boxes.length} boxes of this turn`);
}

function bubble(kind, text) {
  const made = document.createElement('p');
  made.className = kind;
  made.textContent = text;
  return made;
}

function show() {
  const shown = data.cases[at];
  [...byId('turns').children].forEach((item, place) => {
    item.classList.toggle('later', place > turn);
    item.setAttribute('aria-current', String(place === turn));
  });
  byId('back').disabled = turn === 0;
  byId('next').disabled = turn === shown.turns.length - 1;
  drawImage();
}

function open(place) {
  at = place;
  turn = 0;
  const shown = data.cases[at];
  byId('about').textContent = shown.about;
  byId('turns').replaceChildren(...shown.turns.map((one, number) => {
    const item = document.createElement('li');
    item.append(bubble('asked', one.question));
    item.append(bubble(one.failure ? 'said failed' : 'said', one.failure || one.answer));
    if (one.expected) item.append(bubble('expected', one.expected));
    item.addEventListener('click', () => { turn = number; stop(); show(); });
    return item;
  }));
  show();
}

function step(by) {
  turn = Math.min(Math.max(turn + by, 0), data.cases[at].turns.length - 1);
  show();
}

function stop() {
  clearInterval(timer);
  timer = null;
  byId('play').textContent = 'Play';
  byId('play').setAttribute('aria-pressed', 'false');
}

byId('back').addEventListener('click', () => { stop(); step(-1); });
byId('next').addEventListener('click', () => { stop(); step(1); });
byId('play').addEventListener('click', () => {
  if (timer !== null) { stop(); return; }
  if (turn === data.cases[at].turns.length - 1) turn = -1;
  step(1);
  byId('play').textContent = 'Stop';
  byId('play').setAttribute('aria-pressed', 'true');
  timer = setInterval(() => {
    step(1);
    if (turn === data.cases[at].turns.length - 1) stop();
  }, PAUSE);
});
document.addEventListener('keydown', (event) => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (by && event.target === document.body) { event.preventDefault(); stop(); step(by); }
});
data.cases.forEach((one, place) => byId('cases').append(new Option(one.title, place)));
byId('choice').hidden = data.cases.length < 2;
byId('cases').addEventListener('change', (event) => { stop(); open(Number(event.target.value)); });
const kinds = [['now', 'boxes of this turn'], ['before', 'of earlier turns']];
if (data.cases.some((one) => one.turns.some((told) => told.right.length))) kinds.splice(1, 0, ['right', 'expected boxes']);
byId('key').append(...kinds.flatMap(([kind, name]) => {
  const made = document.createElement('span');
  made.className = kind;
  return [made, name];
}));
open(0);
