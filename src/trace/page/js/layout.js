// ---- Rows: what stands where, from top to bottom ---------------------------------------------------

const RULER = 26;
const LANE = 17;
const ROW_GAP = 7;
const GROUP = 22;
const IDLE = 15;

// {kind: 'group' | 'idle' | 'track', title, y, height, lanes, track or device}, y from the first row's top.
function buildRows(recording) {
  const lanesOf = new LaneBuilder(recording).build();
  const rows = [];
  const addTrack = (track, index) => {
    const lanes = lanesOf[index];
    // Streams stand under their device's name.
    const title = track.title === `device ${track.device}, stream ${track.id}` ? `stream ${track.id}` : track.title;
    rows.push({kind: 'track', title, track: index, lanes, height: lanes.length * LANE + ROW_GAP});
  };
  for (const device of devicesOf(recording, lanesOf)) {
    rows.push({kind: 'group', title: deviceTitle(recording, device), lanes: [], height: GROUP});
    const gaps = recording.gapsOf.get(device);
    if (gaps) {
      const lane = new Lane(gaps.begin, gaps.end, Uint32Array.from(gaps.begin.keys()));
      rows.push({kind: 'idle', title: 'idle', device, lanes: [lane], height: IDLE + ROW_GAP});
    }
    recording.tracks.forEach((track, index) => {
      if (track.stream && track.device === device && lanesOf[index].length > 0) addTrack(track, index);
    });
  }
  rows.push({kind: 'group', title: `process ${recording.summary.origin.process}`, lanes: [], height: GROUP});
  for (const index of threadsInOrder(recording, lanesOf)) addTrack(recording.tracks[index], index);
  let y = 0;
  for (const row of rows) {
    row.y = y;
    y += row.height;
  }
  return rows;
}

function devicesOf({tracks}, lanesOf) {
  const streams = tracks.filter((track, index) => track.stream && lanesOf[index].length > 0);
  return [...new Set(streams.map((track) => track.device))].sort((a, b) => a - b);
}

function deviceTitle(recording, device) {
  const known = recording.report.devices.find((one) => one.device === device);
  const name = known?.name || (device === 0 ? recording.summary.origin.device : '');
  return name ? `device ${device} · ${name}` : `device ${device}`;
}

// The thread that takes the steps comes first: it is the one to look at.
function threadsInOrder(recording, lanesOf) {
  const threads = recording.tracks.map((_, index) => index)
    .filter((index) => !recording.tracks[index].stream && lanesOf[index].length > 0);
  const step = recording.classes.find((one) => one.kind === 'range' && one.name === recording.report.step_name);
  if (step) threads.sort((a, b) => Number(b === step.track) - Number(a === step.track));
  return threads;
}


