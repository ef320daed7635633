// The image: its levels by window and level, the masks over it, zoom and pan. This file does not handle verdicts.
const MASK_COLOUR = [230, 159, 0];
const ALSO_COLOUR = [86, 180, 233];
const ZOOM = { least: 1, most: 12, step: 1.25 };

function loadImage(url) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error('A picture of this page is damaged.'));
    image.src = url;
  });
}

// Red, green, blue and opacity of a picture's pixels.
async function pixelsOf(url) {
  const image = await loadImage(url);
  const canvas = document.createElement('canvas');
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  return { width: canvas.width, height: canvas.height, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
}

// A mask, one byte a pixel.
async function maskOf(url) {
  const { width, height, data } = await pixelsOf(url);
  const levels = new Uint8ClampedArray(data.length / 4);
  for (let at = 0; at < levels.length; at += 1) levels[at] = data[4 * at];
  return { width, height, levels };
}

// Whether a pixel of the mask has a neighbour outside it, two pixels wide so that it is seen when made smaller.
function onOutline(mask, at) {
  const { width, height, levels } = mask;
  const x = at % width;
  const y = (at - x) / width;
  for (let dy = -2; dy <= 2; dy += 1) {
    for (let dx = -2; dx <= 2; dx += 1) {
      if (Math.abs(dx) + Math.abs(dy) > 2) continue;
      const [column, row] = [x + dx, y + dy];
      if (column < 0 || row < 0 || column >= width || row >= height || !levels[row * width + column]) return true;
    }
  }
  return false;
}

class View {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.picture = null;
    this.mask = null;
    this.also = null;
    this.shown = true;
    this.besides = false;
    this.outline = false;
    this.opacity = 0.4;
    this.drag = 'window';
    this.reset();
    this.pointers = new Map();
    canvas.addEventListener('pointerdown', (event) => this.down(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, (event) => this.up(event));
    // a quick finger starts no fling, which would swallow the next tap, on a button
    canvas.addEventListener('touchmove', (event) => event.preventDefault(), { passive: false });
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    canvas.addEventListener('dblclick', () => { this.reset(); this.draw(); });
    canvas.addEventListener('contextmenu', (event) => event.preventDefault());
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  reset() {
    Object.assign(this, { window: 256, level: 128, zoom: 1, x: 0, y: 0 });
  }

  show(picture, mask, also) {
    this.picture = picture;
    this.mask = mask;
    this.also = also;
    this.grey = this.layer = this.second = null;
    this.shown = true;
    this.besides = false;
    this.reset();
    this.draw();
  }

  clear() {
    this.picture = null;
    this.draw();
  }

  // Canvases of the picture at this window and level, and of the mask; remade only when they must be.
  painted() {
    const { width, height, data: levels } = this.picture;
    const wanted = `${this.window} ${this.level}`;
    if (!this.grey || this.grey.wanted !== wanted) {
      const low = this.level - this.window / 2;
      this.grey = View.paint(width, height, (data) => {
        for (let at = 0; at < levels.length; at += 1) {
          data[at] = at % 4 === 3 ? 255 : (255 * (levels[at] - low)) / this.window;
        }
      });
      this.grey.wanted = wanted;
    }
    if (this.mask && (!this.layer || this.layer.outline !== this.outline)) {
      this.layer = View.area(this.mask, MASK_COLOUR, this.outline);
      this.layer.outline = this.outline;
    }
    if (this.also && !this.second) this.second = View.area(this.also, ALSO_COLOUR, false);
  }

  // A canvas of a mask, as area or as outline.
  static area(mask, colour, outline) {
    return View.paint(mask.width, mask.height, (data) => {
      for (let at = 0; at < mask.levels.length; at += 1) {
        if (mask.levels[at] && (!outline || onOutline(mask, at))) data.set([...colour, 255], 4 * at);
      }
    });
  }

  static paint(width, height, fill) {
    const canvas = document.createElement('canvas');
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext('2d');
    const image = context.createImageData(width, height);
    fill(image.data);
    context.putImageData(image, 0, 0);
    return canvas;
  }

  draw() {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const side = Math.max(1, Math.round(canvas.clientWidth * ratio));
    if (canvas.width !== side || canvas.height !== side) canvas.width = canvas.height = side;
    const context = canvas.getContext('2d');
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = '#000';
    context.fillRect(0, 0, side, side);
    if (this.picture) {
      this.painted();
      const scale = side * this.zoom;
      context.setTransform(scale, 0, 0, scale, this.x * side, this.y * side);
      context.drawImage(this.grey, 0, 0, 1, 1);
      if (this.also && this.besides) context.drawImage(this.second, 0, 0, 1, 1);
      if (this.mask && this.shown) {
        // a thin line needs more to be seen
        context.globalAlpha = this.outline ? Math.min(1, 2 * this.opacity) : this.opacity;
        context.drawImage(this.layer, 0, 0, 1, 1);
        context.globalAlpha = 1;
      }
    }
    this.changed();
  }

  setWindow(width, level) {
    this.window = Math.min(512, Math.max(1, Math.round(width)));
    this.level = Math.min(255, Math.max(0, Math.round(level)));
    this.draw();
  }

  // Zooms so that the point (in sides of the canvas) stays where it is.
  zoomBy(factor, x = 0.5, y = 0.5) {
    const zoom = Math.min(ZOOM.most, Math.max(ZOOM.least, this.zoom * factor));
    const by = zoom / this.zoom;
    this.zoom = zoom;
    this.panTo(x - (x - this.x) * by, y - (y - this.y) * by);
  }

  // The picture never leaves the canvas: its corner is between 1 - zoom and 0.
  panTo(x, y) {
    this.x = Math.min(0, Math.max(1 - this.zoom, x));
    this.y = Math.min(0, Math.max(1 - this.zoom, y));
    this.draw();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.at(event));
    this.panning = (this.drag === 'pan') !== (event.shiftKey || event.button > 0);
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.at(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId);
    this.pointers.set(event.pointerId, now);
    const [dx, dy] = [now.x - before.x, now.y - before.y];
    if (other) { // two fingers: the picture follows both
      const [, fixed] = other;
      const spread = (point) => Math.hypot(point.x - fixed.x, point.y - fixed.y) || 1e-3;
      this.x += dx / 2;
      this.y += dy / 2;
      this.zoomBy(spread(now) / spread(before), (now.x + fixed.x) / 2, (now.y + fixed.y) / 2);
    } else if (this.panning) this.panTo(this.x + dx, this.y + dy);
    else this.dragWindow(before, now);
  }

  // Right is a wider window, up a lower level (brighter); a whole side of the canvas is 512 or 256 grey levels.
  dragWindow(before, now) {
    const start = (this.dragged ||= { window: this.window, level: this.level });
    start.window = Math.min(512, Math.max(1, start.window + 512 * (now.x - before.x)));
    start.level = Math.min(255, Math.max(0, start.level + 256 * (now.y - before.y)));
    this.setWindow(start.window, start.level);
  }

  up(event) {
    this.pointers.delete(event.pointerId);
    this.dragged = null;
  }

  wheel(event) {
    event.preventDefault();
    const { x, y } = this.at(event);
    this.zoomBy(event.deltaY < 0 ? ZOOM.step : 1 / ZOOM.step, x, y);
  }
}
