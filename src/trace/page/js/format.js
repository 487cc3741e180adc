// SPDX-License-Identifier: Apache-2.0

// ---- Numbers as people read them -------------------------------------------------------------------

const DURATION_UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

// Returns three significant digits, and always all digits before the point: 1.23, 12.3, 1234.
function significant(number) {
  const size = Math.abs(number);
  return number.toFixed(size >= 100 || number === 0 ? 0 : size >= 10 ? 1 : 2);
}

function formatDuration(nanoseconds) {
  for (const [unit, name] of DURATION_UNITS) {
    // The factor makes 999.96 µs 1.00 ms, not 1000 µs.
    if (Math.abs(nanoseconds) >= unit * 0.9995 || unit === 1) {
      return unit === 1 ? `${Math.round(nanoseconds)} ns` : `${significant(nanoseconds / unit)} ${name}`;
    }
  }
}

// Returns the duration exact to the nanosecond: 1.234567 ms.
function formatExactly(nanoseconds) {
  for (const [unit, name] of DURATION_UNITS) {
    if (Math.abs(nanoseconds) >= unit || unit === 1) {
      return `${+(nanoseconds / unit).toFixed(Math.round(Math.log10(unit)))} ${name}`;
    }
  }
}

function formatBytes(bytes) {
  for (const [unit, name] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (bytes >= unit * 0.9995) return `${significant(bytes / unit)} ${name}`;
  }
  return `${bytes} B`;
}


function formatRate(bytesPerSecond) {
  if (!(bytesPerSecond > 0)) return '–';
  const giga = bytesPerSecond >= 1e9 * 0.9995;
  return giga ? `${significant(bytesPerSecond / 1e9)} GB/s` : `${significant(bytesPerSecond / 1e6)} MB/s`;
}

const formatCount = (count) => count.toLocaleString('en-US');
const formatPercent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;

// Returns an element with properties and children: make('button', {className: 'quiet'}, 'Close').
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);

