// The panels of dashboard.json, drawn with Grafana's components from the series of a Prometheus: ?prometheus=URL&minutes=N

import React from 'react';
import { createRoot } from 'react-dom/client';
import {
  FieldConfigOptionsRegistry, FieldType, ThemeContext, applyFieldOverrides, createTheme, dateTime, getFieldDisplayValues, toDataFrame,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';

const WIDTH = 1600, COLUMNS = 24, ROW = 38, GAP = 8, TITLE = 40;
const STANDARD = ['unit', 'min', 'max', 'decimals', 'displayName', 'color', 'thresholds', 'mappings', 'noValue', 'links'];
const CUSTOM = [
  'drawStyle', 'lineWidth', 'fillOpacity', 'showPoints', 'spanNulls', 'stacking', 'thresholdsStyle', 'lineInterpolation', 'pointSize',
  'axisPlacement', 'axisLabel', 'gradientMode', 'scaleDistribution', 'hideFrom', 'axisSoftMin', 'axisSoftMax', 'axisBorderShow',
];

const parameters = new URLSearchParams(location.search);
const minutes = Number(parameters.get('minutes'));
const to = Math.floor(Date.now() / 1000), from = to - minutes * 60, step = 2;
const theme = createTheme({ colors: { mode: 'light' } });
const same = (value) => value;

// Grafana has a registry of the options of each plugin; here they are taken as they stand in the dashboard.
const registry = new FieldConfigOptionsRegistry();
for (const [paths, isCustom] of [[STANDARD, false], [CUSTOM, true]]) {
  for (const path of paths) {
    const id = isCustom ? `custom.${path}` : path;
    registry.register({
      id, path, isCustom, name: id, process: same, override: same, shouldApply: () => true, getItemsCount: () => 0, editor: () => null,
    });
  }
}

async function series(target) {
  const expression = target.expr.replaceAll(/\$(cluster|job|instance)/g, '.*').replaceAll('$__rate_interval', '1m');
  const query = new URLSearchParams({ query: expression, start: from, end: to, step, time: to });
  const kind = target.instant ? 'query' : 'query_range';
  const answer = await (await fetch(`${parameters.get('prometheus')}/api/v1/${kind}?${query}`)).json();
  if (answer.status !== 'success') throw new Error(`${target.expr}: ${answer.error}`);
  return answer.data.result;
}

function frame(target, { metric, value, values }) {
  const name = target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
  let points = values ?? [value];
  if (values) { // Grafana fills missing steps with null
    const known = new Map(values.map(([time, number]) => [Math.round(time), number]));
    points = Array.from({ length: minutes * 60 / step + 1 }, (_, at) => from + at * step).map((time) => [time, known.get(time) ?? null]);
  }
  const numbers = points.map(([, number]) => (number === null ? null : Number(number)));
  return toDataFrame({
    refId: target.refId, name,
    fields: [
      { name: 'Time', type: FieldType.time, values: points.map(([time]) => time * 1000), config: { interval: step * 1000 } },
      { name: 'Value', type: FieldType.number, labels: metric, values: numbers, config: { displayNameFromDS: name } },
    ],
  });
}

async function frames(panel) {
  const data = [];
  for (const target of panel.targets) data.push(...(await series(target)).map((each) => frame(target, each)));
  return applyFieldOverrides({
    data, fieldConfig: panel.fieldConfig, replaceVariables: same, theme, fieldConfigRegistry: registry, timeZone: 'browser',
  });
}

function Body({ panel, data, width, height }) {
  const { fieldConfig, options } = panel;
  if (!data.length) return <div style={{ display: 'grid', height, placeItems: 'center' }}>No data</div>;
  if (panel.type === 'stat') {
    const values = getFieldDisplayValues({
      fieldConfig, reduceOptions: options.reduceOptions, replaceVariables: same, theme, data, sparkline: false, timeZone: 'browser',
    });
    return <BigValue {...options} value={values[0].display} count={values.length} width={width} height={height} theme={theme} />;
  }
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: `now-${minutes}m`, to: 'now' } };
  return <TimeSeries frames={data} structureRev={1} timeRange={range} timeZone="browser" width={width} height={height}
    legend={options.legend} options={options} />;
}

function Dashboard({ dashboard, data }) {
  const cell = (WIDTH + GAP) / COLUMNS;
  const rows = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return <div id="dashboard" style={{ position: 'relative', width: WIDTH, height: rows * ROW + TITLE, margin: 16 }}>
    <h2>{dashboard.title}</h2>
    {dashboard.panels.map((panel, at) => {
      const { x, y, w, h } = panel.gridPos;
      const width = w * cell - GAP, height = h * ROW - GAP;
      return <div key={panel.id} style={{ position: 'absolute', left: x * cell, top: y * ROW + TITLE, width, height }}>
        <PanelChrome title={panel.title} width={width} height={height}>
          {(inner, high) => <Body panel={panel} data={data[at]} width={inner} height={high} />}
        </PanelChrome>
      </div>;
    })}
  </div>;
}

const dashboard = await (await fetch('dashboard.json')).json();
const data = await Promise.all(dashboard.panels.map(frames));
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}><GlobalStyles /><Dashboard dashboard={dashboard} data={data} /></ThemeContext.Provider>,
);
setTimeout(() => { window.drawn = true; }, 3000);
