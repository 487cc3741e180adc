// SPDX-License-Identifier: Apache-2.0

// ---- Rows: the groups, idle rows, memory rows and tracks, from top to bottom -----------------------

const RULER = 26;
const LANE = 17;
const ROW_GAP = 7;
const GROUP = 22;
const IDLE = 15;
const MEMORY = 30;

// Returns the rows, each as {kind: 'group' | 'idle' | 'memory' | 'track', title, y, height, lanes, track or
// device}. y is the distance from the top of the first row.
function buildRows(recording) {
  const lanesOf = new LaneBuilder(recording).build();
  const rows = [];
  const addTrack = (track, index) => {
    const lanes = lanesOf[index];
    // The rank and the device need not be repeated: the rows above the track name them.
    const own = track.title.replace(`rank ${track.rank}: `, '');
    const title = own === `device ${track.device}, stream ${track.id}` ? `stream ${track.id}` : own;
    rows.push({kind: 'track', title, track: index, lanes, height: lanes.length * LANE + ROW_GAP});
  };
  const addDevice = (device) => {
    rows.push({kind: 'group', title: deviceTitle(recording, device), lanes: [], height: GROUP});
    const gaps = recording.gapsOf.get(device);
    if (gaps) {
      const lane = new Lane(gaps.begin, gaps.end, Uint32Array.from(gaps.begin.keys()));
      rows.push({kind: 'idle', title: 'idle', device, lanes: [lane], height: IDLE + ROW_GAP});
    }
    if (recording.memoryOf.has(device)) {
      rows.push({kind: 'memory', title: 'memory', device, lanes: [], height: MEMORY + ROW_GAP});
    }
    recording.tracks.forEach((track, index) => {
      if (track.stream && track.device === device && lanesOf[index].length > 0) addTrack(track, index);
    });
  };
  const ranks = new Set(recording.tracks.map((track) => track.rank));
  for (const rank of ranks.size > 0 ? [...ranks].sort((a, b) => a - b) : [-1]) {
    devicesOf(recording, lanesOf, rank).forEach(addDevice);
    const title = rank < 0 ? `process ${recording.summary.origin.process}` : `rank ${rank}`;
    rows.push({kind: 'group', title, lanes: [], height: GROUP});
    for (const index of threadsInOrder(recording, lanesOf, rank)) addTrack(recording.tracks[index], index);
  }
  let y = 0;
  for (const row of rows) {
    row.y = y;
    y += row.height;
  }
  return rows;
}

function devicesOf({tracks}, lanesOf, rank) {
  const streams = tracks.filter((track, index) => track.stream && track.rank === rank && lanesOf[index].length > 0);
  return [...new Set(streams.map((track) => track.device))].sort((a, b) => a - b);
}

function deviceTitle(recording, device) {
  const known = recording.report.devices.find((one) => one.device === device);
  const name = known?.name || (device === 0 ? recording.summary.origin.device : '');
  return name ? `device ${device} · ${name}` : `device ${device}`;
}

// The thread that has the steps comes first, because it is the one to look at.
function threadsInOrder({tracks, classes, report}, lanesOf, rank) {
  const threads = tracks.map((_, index) => index)
    .filter((index) => !tracks[index].stream && tracks[index].rank === rank && lanesOf[index].length > 0);
  const step = classes.find((one) => one.kind === 'range' && one.name === report.step_name &&
    tracks[one.track].rank === rank);
  if (step) threads.sort((a, b) => Number(b === step.track) - Number(a === step.track));
  return threads;
}


