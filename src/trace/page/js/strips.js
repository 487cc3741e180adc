// SPDX-License-Identifier: Apache-2.0

// ---- Strips: the events that are too short for a box -----------------------------------------------
//
// A lane has a line of pixels, which is drawn as high as the lane. A pixel has the colour of its longest
// event, and is the stronger, the more of its time is covered. Pixels begin at fixed times, which do not
// move with the view, so nothing flickers while the view is dragged.

const BOX = 4;  // in device pixels: shorter events are drawn into the strip

class Strips {
  constructor() {
    this.canvas = document.createElement('canvas');
    this.context = this.canvas.getContext('2d');
    this.image = null;
    this.pixels = null;
    this.lines = 0;
  }

  // `lines` is the largest number of lanes that will be added.
  start(width, lines) {
    if (this.image === null || this.image.width !== width || this.image.height < lines) {
      this.canvas.width = width;
      this.canvas.height = Math.max(lines, 1);
      this.image = new ImageData(width, this.canvas.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(0);
    this.lines = 0;
  }

  // Draws the visible part of the lane into the next line and returns the number of that line. Calls
  // `addBox(place, x, width)` for the events that are long enough for a box. `colour(place)` returns a packed
  // colour. `least`, 0 ... 1, is the strength of a pixel that is hardly covered.
  addLane(lane, scale, colour, least, addBox) {
    this.least = least;
    const line = this.lines++;
    const {width} = this.image;
    const last = scale.timeAt(width);
    let place = lane.firstEndingAfter(scale.timeAt(0));
    while (place < lane.size && lane.begin[place] < last) {
      const begin = lane.begin[place];
      const length = lane.end[place] - begin;
      if (length >= scale.unit) {
        this.addEvent(lane, place, line, scale, colour, addBox);
        ++place;
      } else {
        place = this.addPixel(lane, place, line, scale, colour);
      }
    }
    return line;
  }

  addEvent(lane, place, line, scale, colour, addBox) {
    const {width} = this.image;
    const x = Math.max(scale.pixelAt(lane.begin[place]), -1);
    const until = Math.min(scale.pixelAt(lane.end[place]), width + 1);
    if (until - x >= BOX) {
      addBox(place, x, until - x);
    } else {
      const first = line * width;
      this.pixels.fill(colour(place), first + Math.max(x, 0), first + Math.min(Math.max(until, x + 1), width));
    }
  }

  // Adds all short events that begin within one pixel. Returns the place after them.
  addPixel(lane, place, line, scale, colour) {
    const {width} = this.image;
    const cell = Math.floor(lane.begin[place] / scale.unit);
    const edge = (cell + 1) * scale.unit;
    let next = Math.max(lane.firstBeginningAt(edge, place), place + 1);
    // Events of a lane do not overlap, so only the last one can be long.
    if (next - place > 1 && lane.end[next - 1] - lane.begin[next - 1] >= scale.unit) --next;
    const x = cell - scale.firstCell;
    if (x >= 0 && x < width) {
      const covered = Math.min((lane.covered[next] - lane.covered[place]) / scale.unit, 1);
      const alpha = Math.round(255 * (this.least + (1 - this.least) * covered));
      this.pixels[line * width + x] = (colour(lane.longest(place, next)) & 0xffffff | alpha << 24) >>> 0;
    }
    return next;
  }

  finish() {
    this.context.putImageData(this.image, 0, 0);
  }

  draw(context, line, y, height) {
    const {width} = this.image;
    context.drawImage(this.canvas, 0, line, width, 1, 0, y, width, height);
  }
}

// Converts times to device pixels and back. `unit` is the nanoseconds of a pixel.
class Scale {
  constructor(view, pixels) {
    this.unit = view.span / pixels;
    this.firstCell = Math.round(view.begin / this.unit);
    this.origin = this.firstCell * this.unit;
  }

  pixelAt(time) { return Math.round((time - this.origin) / this.unit); }
  timeAt(pixel) { return this.origin + pixel * this.unit; }
}

